//! What one lookup costs the server: plain MGET against scripts and against a pipeline that asks
//! for the id as well.
//!
//! Processor time of the server itself, so that neither the client nor a loaded machine counts.

use std::fmt;

use anyhow::{Context, Result, ensure};
use redis::Pipeline;
use redis::aio::MultiplexedConnection;

use crate::redis::{Kind, Options, Server};

/// Lookups in one pipeline.
const BATCH: usize = 16;

/// The shape of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `MGET`.
    Mget,
    /// `MGET`, then `INFO replication`, in one pipeline.
    MgetThenInfo,
    /// A script with `MGET`.
    Script,
    /// A script with `MGET` that answers `INFO replication` too.
    ScriptWithInfo,
    /// The same with the section `stats` as well.
    ScriptWithStats,
}

impl Shape {
    /// All of them, the cheapest first.
    pub const ALL: [Self; 5] =
        [Self::Mget, Self::MgetThenInfo, Self::Script, Self::ScriptWithInfo, Self::ScriptWithStats];

    fn script(self) -> Option<&'static str> {
        match self {
            Self::Mget | Self::MgetThenInfo => None,
            Self::Script => Some("return redis.call('MGET', unpack(KEYS))"),
            Self::ScriptWithInfo => {
                Some("return {redis.call('MGET', unpack(KEYS)), redis.call('INFO', 'replication')}")
            }
            Self::ScriptWithStats => Some(
                "return {redis.call('MGET', unpack(KEYS)), \
                 redis.call('INFO', 'replication', 'stats')}",
            ),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mget => "`MGET`",
            Self::MgetThenInfo => "`MGET` and `INFO replication` in a pipeline",
            Self::Script => "a script with `MGET`",
            Self::ScriptWithInfo => "a script with `MGET` and `INFO replication`",
            Self::ScriptWithStats => "the same with `stats`",
        })
    }
}

/// What one lookup in one shape costs.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The shape.
    pub shape: Shape,
    /// Keys in one lookup.
    pub keys: usize,
    /// Microseconds of the server's processor time for one lookup.
    pub micros: f64,
}

/// Measures every shape, each `rounds` times 16 lookups, turn by turn.
///
/// # Errors
/// When the server does not answer.
pub async fn costs(kind: Kind, rounds: usize) -> Result<Vec<Cost>> {
    const TURNS: usize = 3;
    let server = Server::start(Options::new(kind)).await?;
    let mut connection = server.connect().await?;
    let mut costs = Vec::new();
    for keys in [1, 8, 32] {
        let names: Vec<String> = (0..keys).map(|number| format!("tg:{number}")).collect();
        for name in &names {
            server.tell(&["SET", name, "0123456789012345678901234567890123456789"]).await?;
        }
        let mut sums = [0.0; Shape::ALL.len()];
        for _ in 0..TURNS {
            for (sum, shape) in sums.iter_mut().zip(Shape::ALL) {
                let pipeline = pipeline(&server, shape, &names).await?;
                *sum += run(&server, &mut connection, &pipeline, rounds).await?;
            }
        }
        let lookups = (TURNS * rounds * BATCH) as f64;
        for (sum, shape) in sums.into_iter().zip(Shape::ALL) {
            costs.push(Cost { shape, keys, micros: sum / lookups });
        }
    }
    Ok(costs)
}

async fn pipeline(server: &Server, shape: Shape, names: &[String]) -> Result<Pipeline> {
    let mut pipeline = Pipeline::new();
    let sha: Option<String> = match shape.script() {
        None => None,
        Some(text) => Some(server.ask(&["SCRIPT", "LOAD", text]).await?),
    };
    for _ in 0..BATCH {
        match &sha {
            None => {
                pipeline.cmd("MGET").arg(names);
            }
            Some(sha) => {
                pipeline.cmd("EVALSHA").arg(sha).arg(names.len()).arg(names);
            }
        }
        if shape == Shape::MgetThenInfo {
            pipeline.cmd("INFO").arg("replication");
        }
    }
    Ok(pipeline)
}

/// Microseconds of processor time that the server spent.
async fn run(
    server: &Server,
    connection: &mut MultiplexedConnection,
    pipeline: &Pipeline,
    rounds: usize,
) -> Result<f64> {
    let before = processor_time(server).await?;
    for _ in 0..rounds {
        let answers: Vec<redis::Value> = pipeline.query_async(connection).await?;
        ensure!(!answers.is_empty(), "the server answers");
    }
    Ok((processor_time(server).await? - before) * 1e6)
}

async fn processor_time(server: &Server) -> Result<f64> {
    let info = server.info().await?;
    let mut sum = 0.0;
    for name in ["used_cpu_user", "used_cpu_sys"] {
        sum += info.field(name)?.parse::<f64>().with_context(|| format!("{name} is a number"))?;
    }
    Ok(sum)
}
