//! Policies, keys and the cap change under load, each by another way; nobody notices.

use std::time::Duration;

use tidegate_client::{
    ClientError, Policy, ReadError, Reason, Role, Session, SessionOptions, WaitOutcome, WaitTarget,
};
use tidegate_lab::service::{DATABASE, PARTITION};
use tidegate_lab::wait::LIMIT;
use tidegate_proto::v1::ErrorReason;
use tonic::Code;

use super::load::Load;
use super::program::Way;
use super::stage::{FEED, Stage, pool};

/// Reads nothing of interest by a named policy; who served it, and why.
async fn served(session: &Session, policy: &str) -> Result<(Role, Reason), ClientError> {
    let (pool, policy) = (pool(), Policy::named(policy));
    let one = async |db: &tokio_postgres::Client| db.query_one("select 1", &[]).await.map(drop);
    match session.read(&pool, &policy, one).await {
        Ok(read) => Ok((read.node.role, read.reason)),
        Err(ReadError::Client(error)) => Err(error),
        Err(other) => panic!("{other:?}"),
    }
}

/// The token of a session that has written.
async fn token(stage: &Stage, n: i64) -> String {
    let leader = stage.cluster.leader().connect("postgres", DATABASE).await;
    let session = stage.session();
    let insert = "insert into t values ($1)";
    let mut leader = leader.expect("the leader is there");
    let written = session.write(&mut leader, async |tx| tx.execute(insert, &[&n]).await).await;
    written.expect("it is written and recorded");
    session.tokens().pop().expect("a session that wrote has a token")
}

fn carrying(stage: &Stage, token: &str) -> Session {
    stage.client.session(SessionOptions::new(PARTITION).token(token))
}

/// Why a wait for the leader, which needs a permit of the cap, does not end well; `None`: it does.
/// A cap that was just raised has one within a moment.
async fn refused(stage: &Stage, token: &str, budget: Duration) -> Option<Reason> {
    let target = WaitTarget::Node("l".to_owned());
    let waited = carrying(stage, token).wait(target, budget).await.expect("it ends");
    (!matches!(waited.outcome, WaitOutcome::Fresh(_))).then_some(waited.reason)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of the run")]
async fn policies_keys_and_the_cap_change_under_load_and_nobody_notices() {
    let stage = Stage::set(1, 0).await;
    let load = Load::start(&stage, "feed").await;
    load.goes_on(3).await;
    let before = token(&stage, -1).await;
    assert!(stage.is_sealed_by(&before, "old"));
    let reader = carrying(&stage, &before);
    assert_eq!(served(&reader, "feed").await.expect("it is served").0, Role::Replica);

    // SIGHUP: the leader serves the policy of the load, one is added, a key is accepted.
    let leader = "[policy.feed]\nlevel = \"leader\"\n[policy.report]\nlevel = \"eventual\"\n";
    let next = stage.text().policies(leader).keys(&["old", "new"]);
    let told = stage.program.reload(&next.toml(), Way::Signal).await.expect("it is in force");
    for change in ["policy.feed: changed", "policy.report: added", "token.keys: "] {
        assert!(told.contains(change), "{told}");
    }
    let by_policy = (Role::Leader, Reason::LeaderByPolicy);
    assert_eq!(served(&reader, "feed").await, Ok(by_policy));
    served(&reader, "report").await.expect("it is known");
    assert!(stage.is_sealed_by(&token(&stage, -2).await, "old"), "the new one is only accepted");
    load.goes_on(3).await;

    // The command: that key seals, the cap closes, the policies are as at the start.
    assert_eq!(refused(&stage, &before, LIMIT).await, None);
    let next = stage.text().keys(&["new", "old"]).limit("fallback_reads", "0");
    let told = stage.program.reload(&next.toml(), Way::Command).await.expect("it is in force");
    for change in ["limits.fallback_reads: 0, it was 100", "policy.report: removed"] {
        assert!(told.contains(change), "{told}");
    }
    assert_eq!(refused(&stage, &before, Duration::ZERO).await, Some(Reason::CapExhausted));
    assert!(stage.is_sealed_by(&token(&stage, -3).await, "new"));
    // What the old one sealed is still somebody's.
    let again = carrying(&stage, &before);
    let (role, reason) = served(&again, "feed").await.expect("it is served");
    assert_eq!((role, [Reason::Covered, Reason::Waited].contains(&reason)), (Role::Replica, true));
    load.goes_on(3).await;

    // The call: the cap opens again; and once more, which changes nothing.
    let next = stage.text().keys(&["new", "old"]).toml();
    let told = stage.program.reload(&next, Way::Call).await.expect("it is in force");
    assert_eq!(told, "limits.fallback_reads: 100, it was 0");
    assert_eq!(refused(&stage, &before, LIMIT).await, None);
    load.goes_on(3).await;
    assert_eq!(stage.program.reload(&next, Way::Call).await, Ok(String::new()));
    assert_eq!(
        (stage.program.reloads("applied").await, stage.program.reloads("refused").await),
        (4, 0)
    );
    println!("reload: 4 under load, {} reads of own writes, none stale", load.end().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_policy_is_an_error_that_names_those_there_are() {
    let stage = Stage::set(0, 0).await;
    let policies = format!("{FEED}[policy.account]\n");
    let told = stage.program.reload(&stage.text().policies(&policies).toml(), Way::Call).await;
    assert_eq!(told, Ok("policy.account: added".to_owned()));
    let session = stage.session();
    let Err(ClientError::Service(error)) = served(&session, "fede").await else {
        panic!("there is no such policy")
    };
    assert_eq!((error.code, error.reason), (Code::NotFound, ErrorReason::PolicyUnknown));
    assert!(error.message.contains("no policy `fede`: its configuration names account, feed;"));
    assert_eq!(error.retry_after, None, "asking again is no help");

    // Beside a name no field of a policy may stand: which one counts would be a guess.
    let both = Policy::named("account").wait_budget(Duration::from_millis(1));
    let Err(ClientError::Service(error)) = session.select(&both).await else {
        panic!("a name comes alone")
    };
    assert_eq!((error.code, error.reason), (Code::InvalidArgument, ErrorReason::RequestMalformed));

    // Removed, it is unknown to the next read of the same stream; then there are none.
    let session = stage.session();
    assert!(served(&session, "account").await.is_ok());
    let none = stage.text().policies("").toml();
    stage.program.reload(&none, Way::Call).await.expect("it is in force");
    let Err(ClientError::Service(error)) = served(&session, "account").await else {
        panic!("it is gone")
    };
    assert_eq!(error.reason, ErrorReason::PolicyUnknown);
    assert!(error.message.contains("its configuration names none"), "{}", error.message);
}
