//! A leader that crashes again and again, unseen by its standbys, and then stays dead: the promoted
//! standby leads at once, and no operator is asked. The soak plays the same more often.

use tidegate_lab::crash_loop::{CRASHES, crash_loop, crash_loops};
use tidegate_lab::install::Major;
use tidegate_lab::wait::{LIMIT, until};

use super::lost_write::POLL_INTERVAL;
use super::stage::{Stage, on_both_majors};

on_both_majors! {
    stays_dead =>
        a_leader_that_crash_loops_and_stays_dead_gives_way_at_once_pg15,
        a_leader_that_crash_loops_and_stays_dead_gives_way_at_once_pg18;
}

const ROUNDS: usize = 3;

async fn stays_dead(major: Major) {
    let stage = Stage::set(major, 1).await;
    let (desk, unruled) = (stage.desk().await, stage.desk_without("who_leads").await);
    let (l, r1) = (stage.l(), stage.r1());
    stage.stall.forget();
    let mut loops = vec![crash_loop(&desk.service, l, r1).await.expect("it ends well")];
    // The wrong way: the node that was seen writable first leads for ever, dead or not.
    unruled.until_lives(r1).await;
    let writable = r1.timeline().await.expect("r1 is writable") > 1;
    let wrong = unruled.partition().await;
    assert!(writable && wrong.leader_node == "l", "{wrong:?}");
    unruled.service.stop().await.expect("it ends");

    l.clone_from(r1).await.expect("the dead leader is cloned");
    let more = crash_loops(&desk.service, (r1, l), ROUNDS - 1).await;
    loops.extend(more.expect("they end well").0);
    let limit = stage.stall.allow(POLL_INTERVAL * 2);
    for one in &loops {
        assert!(one.led_after <= limit, "{one:?}");
    }
    let promoted: Vec<_> = loops.iter().map(|one| &*one.promoted).collect();
    assert_eq!(promoted, ["r1", "l", "r1"]);
    // The service without the rule was seen until its connections had ended.
    let calm = || async { Ok(desk.partition().await.alarms.is_empty()) };
    let calm = until("no alarm is left", LIMIT, calm).await;
    assert!(calm.is_ok(), "nobody is asked: {:?}", desk.partition().await);
    let took: Vec<_> = loops.iter().map(|one| one.led_after).collect();
    println!(
        "crash loop {major:?}: {CRASHES} unseen lives, then dead; led after {took:?}; without the \
         rule the dead one leads"
    );
}
