//! What to try while everything is left running. Changes nothing but the old leader, which
//! becomes a standby again.

use anyhow::Result;

use super::narrator::{chapter, line, say};
use super::stage::Stage;

/// Brings the old leader back, says what to try, and stays.
pub(super) async fn keep(stage: &Stage) -> Result<()> {
    chapter("Left running until Ctrl-C");
    let (l, r1, r2) = (stage.cluster.leader(), stage.cluster.standby(0), stage.cluster.standby(1));
    l.clone_from(r1).await?;
    stage.service.await_nodes().await?;
    say("l is back, as a standby. Now r1 leads.");
    let psql = |port: u16, what: &str| {
        format!("    psql -h 127.0.0.1 -p {port} -U postgres -c \"{what}\"")
    };
    line("\n  A write, and what it leaves as evidence:");
    line(&psql(r1.port(), "insert into form values (1000, 'mine')"));
    line(&psql(r1.port(), "select tidegate.capture()"));
    line("\n  Let r2 lag, and let it go on:");
    line(&psql(r2.port(), "select pg_wal_replay_pause()"));
    line(&psql(r2.port(), "select pg_wal_replay_resume()"));
    let (data, admin) = (stage.service.endpoint(), stage.service.admin_endpoint());
    line("\n  What tidegate sees, and what it decided so far:");
    line(&format!("    curl {admin}/readyz"));
    line(&format!("    target/debug/tidegate epochs --admin {admin}"));
    line(&format!("    target/debug/tidegate events --follow --admin {admin}"));
    line(&format!("    curl -s {admin}/metrics | grep -e replica_lag -e selects"));
    line("\n  Ask it (the API describes itself to grpcurl):");
    let plain = |at: &str| at.trim_start_matches("http://").to_owned();
    let ask = |method: &str, asked: &str| {
        line(&format!("    grpcurl -plaintext -d '{asked}' \\"));
        line(&format!("        {} tidegate.v1.RoutingService/{method}", plain(&data)));
    };
    ask("Record", r#"{"session": {"subject": "you"}, "evidence": "WHAT capture() RETURNED"}"#);
    ask("SelectReplica", r#"{"session": {"subject": "you"}, "partition": "main"}"#);
    line(&format!("\n  It was started with {}", stage.service.config_file().display()));
    let pid = std::process::id();
    line(&format!("\n  To end all of it: Ctrl-C, or kill -INT {pid}"));
    std::future::pending::<()>().await;
    Ok(())
}
