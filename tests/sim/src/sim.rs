//! `Sim`: one world with its instances and sessions, and the loop that lets things happen in it.
//!
//! Whatever takes time is a task of ours, resumed by the heap and by nothing else: no clock, no
//! threads, no order that is not written down.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_core::instant::Instant;
use tidegate_core::lineage::{Incarnation, LineageRow};
use tidegate_core::partition::{Need, NeedId, WaitEnd, WaitFor};
use tidegate_core::trail::Floor;
use tidegate_core::views::{NodeId, Observation};
use tidegate_core::wait::WaitId;

use crate::check::Check;
use crate::heap::Heap;
use crate::instance::{Instance, Waiter};
use crate::mutation::harms;
use crate::options::Options;
use crate::random::Random;
use crate::session::Device;
use crate::store::{Store, StoreKind, own, upkeep};
use crate::world::{STEP, World};

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What the heap holds.
#[derive(Debug)]
pub(crate) enum Happening {
    /// The servers do what they do by themselves.
    Step,
    /// A task goes on.
    Resume(usize),
    /// A source looks whether it has to poll.
    Due { instance: usize, node: usize },
    /// A poll reaches a server.
    Asked { instance: usize, node: usize, poll: PollId },
    /// The answer of a poll comes back.
    Answered { instance: usize, node: usize, poll: PollId, seen: Option<Box<Observation>> },
    /// A source gives a poll up.
    GivenUp { instance: usize, node: usize, poll: PollId },
    /// A row reaches a server.
    RowArrives { instance: usize, life: u64, node: usize, polled: Incarnation, row: LineageRow },
    /// What became of a row comes back.
    RowAnswered { instance: usize, life: u64, done: crate::instance::RowDone },
    /// An instance has something due.
    Tick { instance: usize, life: u64 },
}

/// Names one poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PollId {
    pub(crate) number: u64,
    /// The life of the instance that sent it.
    pub(crate) life: u64,
    pub(crate) sent_at: u64,
    /// What its answer takes.
    pub(crate) back: u64,
}

/// Everything there is.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: u64,
    pub(crate) heap: Heap<Happening>,
    pub(crate) options: Options,
    pub(crate) world: World,
    pub(crate) instances: Vec<Instance>,
    pub(crate) store: Store,
    pub(crate) devices: Vec<Device>,
    pub(crate) check: Check,
    pub(crate) random: Random,
    /// The task that runs.
    current: usize,
    pub(crate) ended: bool,
}

/// The state, and the tasks that change it.
pub(crate) struct Sim {
    state: RefCell<State>,
    tasks: RefCell<Vec<Option<Task>>>,
}

impl State {
    pub(crate) const fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(crate) fn node(index: usize) -> NodeId {
        NodeId::new(u16::try_from(index).expect("few nodes"))
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Step => {
                self.world.step(self.now);
                if self.options.store.kind == StoreKind::Shared {
                    self.store.servers.step(self.now);
                }
                self.heap.push(self.now + STEP, Happening::Step);
            }
            Happening::Due { instance, node } => self.due(instance, node),
            Happening::Asked { instance, node, poll } => self.asked(instance, node, poll),
            Happening::Answered { instance, node, poll, seen } => {
                self.answered(instance, node, poll, seen);
            }
            Happening::GivenUp { instance, node, poll } => self.given_up(instance, node, poll),
            Happening::RowArrives { instance, life, node, polled, row } => {
                self.row_arrives(instance, life, node, polled, row);
            }
            Happening::RowAnswered { instance, life, done } => {
                self.row_answered(instance, life, done);
            }
            Happening::Tick { instance, life } => self.tick(instance, life),
            Happening::Resume(_) => {}
        }
    }
}

impl Sim {
    pub(crate) fn new(options: Options) -> Rc<Self> {
        let seed = options.seed;
        let world = World::new(
            options.servers,
            options.flush_interval,
            options.evens_out(),
            seed ^ 0x0770_51D3,
        );
        let instances =
            (0..options.instances).map(|index| Instance::new(index, &options)).collect();
        let state = State {
            now: 0,
            heap: Heap::new(),
            world,
            instances,
            store: Store::new(&options),
            devices: Device::all(&options),
            check: Check::new(options.instances, options.without.map(harms)),
            random: Random::new(seed ^ 0x00D1_CE00),
            current: 0,
            ended: false,
            options,
        };
        let sim = Self { state: RefCell::new(state), tasks: RefCell::new(Vec::new()) };
        sim.with(|state| {
            for at in 0..state.world.servers.len() {
                let most = usize::try_from(state.options.delay_max).expect("small");
                state.world.servers[at].delay = state.random.within(1_000_000, most) as u64;
            }
            state.heap.push(STEP, Happening::Step);
            for instance in 0..state.instances.len() {
                for node in 0..state.options.servers {
                    let at = state.random.next() % STEP;
                    state.heap.push(at, Happening::Due { instance, node });
                }
            }
        });
        let sim = Rc::new(sim);
        sim.keep();
        sim
    }

    /// Lets every instance look after its store.
    fn keep(self: &Rc<Self>) {
        let (kind, seed) = self.with(|state| (state.options.store.kind, state.options.seed));
        for at in 0..self.with(|state| state.instances.len()) {
            match kind {
                StoreKind::Told => {}
                StoreKind::Shared => self.spawn(0, upkeep::upkeep(Rc::clone(self), at)),
                StoreKind::Own => {
                    let random = Random::new(seed ^ 0x0010_0C00 ^ at as u64);
                    self.spawn(0, own::looks(Rc::clone(self), at, random));
                }
            }
        }
    }

    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.borrow_mut())
    }

    pub(crate) fn now(&self) -> u64 {
        self.state.borrow().now
    }

    /// Lets a task begin at `at`.
    pub(crate) fn spawn(&self, at: u64, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        tasks.push(Some(Box::pin(task)));
        let id = tasks.len() - 1;
        self.with(|state| state.heap.push(at, Happening::Resume(id)));
    }

    /// Lets things happen until `until`, or until a promise is broken.
    pub(crate) fn run(&self, until: u64) {
        loop {
            let next = self.with(|state| {
                let (at, happening) = state.heap.pop()?;
                if at > until || state.check.is_broken() {
                    state.heap.push(at, happening);
                    return None;
                }
                state.now = at;
                Some(happening)
            });
            match next {
                None => return,
                Some(Happening::Resume(id)) => self.resume(id),
                Some(other) => self.with(|state| state.happen(other)),
            }
        }
    }

    fn resume(&self, id: usize) {
        let task = self.tasks.borrow_mut()[id].take();
        let Some(mut task) = task else { return };
        self.with(|state| state.current = id);
        let mut context = Context::from_waker(Waker::noop());
        if task.as_mut().poll(&mut context).is_pending() {
            self.tasks.borrow_mut()[id] = Some(task);
        }
    }

    /// Drops every task: they hold the world they live in.
    pub(crate) fn end(&self) {
        self.tasks.borrow_mut().clear();
    }

    /// Waits.
    pub(crate) async fn sleep(&self, nanos: u64) {
        let until = self.now() + nanos;
        let mut asked = false;
        std::future::poll_fn(|_| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            if !asked {
                asked = true;
                self.with(|state| {
                    let id = state.current;
                    state.heap.push(until, Happening::Resume(id));
                });
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits for an observation sent at or after `since`; `false` if none came before `until`.
    pub(crate) async fn need(&self, at: usize, need: Need, since: Instant, until: Instant) -> bool {
        let id = self.with(|state| {
            let id = NeedId::new(state.instances[at].next_id());
            let task = state.current;
            state.instances[at].needs.insert(id, (task, false));
            state.heap.push(until.as_nanos(), Happening::Resume(task));
            state.need(at, id, need, since);
            id
        });
        std::future::poll_fn(|_| {
            self.with(|state| {
                // An instance that restarted knows nothing of it.
                let came = state.instances[at].needs.get(&id).map(|(_, came)| *came);
                if came == Some(false) && state.instant() < until {
                    return Poll::Pending;
                }
                state.instances[at].needs.remove(&id);
                if came == Some(false) {
                    state.unneed(at, id);
                }
                Poll::Ready(came == Some(true))
            })
        })
        .await
    }

    /// Parks a read.
    pub(crate) async fn park(
        &self,
        at: usize,
        floor: Floor,
        nodes: Vec<NodeId>,
        wait_for: WaitFor,
        deadline: Instant,
    ) -> WaitEnd {
        let id = self.with(|state| {
            let id = WaitId::new(state.instances[at].next_id());
            // What a leader sample took may have used the budget up: then it ends at once.
            let ends_by = deadline.max(state.instant());
            let waiter = Waiter { task: state.current, deadline: ends_by, end: None };
            state.instances[at].waits.insert(id, waiter);
            state.park(at, id, floor, nodes, wait_for, deadline);
            id
        });
        std::future::poll_fn(|_| {
            self.with(|state| match state.instances[at].waits.get(&id) {
                None => Poll::Ready(WaitEnd::Gone),
                Some(Waiter { end: None, .. }) => Poll::Pending,
                Some(Waiter { end: Some(end), .. }) => {
                    let end = end.clone();
                    state.instances[at].waits.remove(&id);
                    Poll::Ready(end)
                }
            })
        })
        .await
    }
}
