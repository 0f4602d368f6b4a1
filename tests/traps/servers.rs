//! Which server answered, in which life: what an address cannot tell.
