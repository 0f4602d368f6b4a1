//! A visitor: comes back, looks, writes, looks again, each time as a new request of an application.

use anyhow::{Context, Result};
use tidegate_client::{
    Client, DirectPool, Guarantee, Policy, Read, ReadError, Role, Session, SessionOptions,
};
use tokio_postgres::Error;

use super::Carries;
use crate::history::{Answer, Checker};
use crate::pgbouncer::Pgbouncer;
use crate::postgres::Cluster;
use crate::service::{DATABASE, PARTITION};

/// What all visitors of a run share.
#[derive(Debug)]
pub(super) struct Place {
    /// One before each server, the leader's first; none: visitors come directly.
    pub(super) poolers: Vec<Pgbouncer>,
    pub(super) cluster: Cluster,
    pub(super) client: Client,
    pub(super) pool: DirectPool,
    pub(super) checker: Checker,
    pub(super) carries: Carries,
}

/// One visitor.
#[derive(Debug)]
pub(super) struct Visitor {
    id: i64,
    name: String,
    /// Known by name alone, or by the tokens carried and nothing else.
    by_name: bool,
    tokens: Vec<String>,
    version: i64,
    leader: tokio_postgres::Client,
    /// Reads that were refused or broke off; they promise nothing.
    pub(super) unanswered: u64,
    /// Reads whose connection led elsewhere at first.
    pub(super) selected_again: u64,
}

impl Visitor {
    pub(super) async fn arrive(number: u32, place: &Place) -> Result<Self> {
        let leader = match place.poolers.first() {
            Some(pooler) => pooler.connect(DATABASE).await?,
            None => place.cluster.leader().connect("postgres", DATABASE).await?,
        };
        Ok(Self {
            id: i64::from(number),
            name: format!("visitor-{number}"),
            by_name: number.is_multiple_of(2),
            tokens: Vec::new(),
            version: 0,
            leader,
            unanswered: 0,
            selected_again: 0,
        })
    }

    fn request(&self, place: &Place) -> Session {
        let options = SessionOptions::new(PARTITION);
        place.client.session(if self.by_name {
            options.subject(&self.name)
        } else {
            options.tokens(self.tokens.clone())
        })
    }

    /// One round: a look at what was written last time, a write, and a look at that.
    pub(super) async fn round(&mut self, place: &Place) -> Result<()> {
        if self.version > 0 {
            self.look(place).await;
        }
        self.write(place).await?;
        self.look(place).await;
        let mut lacking = false;
        for standby in place.cluster.standbys() {
            // One that is down says nothing.
            let query = format!("select max(version) from rounds where visitor = {}", self.id);
            let shown = standby.value::<Option<i64>>(&query).await;
            lacking |= shown.is_ok_and(|shown| shown < Some(self.version));
        }
        if lacking {
            place.checker.standby_lacked();
        }
        Ok(())
    }

    async fn write(&mut self, place: &Place) -> Result<()> {
        let (session, next) = (self.request(place), self.version + 1);
        let id = self.id;
        let insert = async |transaction: &tokio_postgres::Transaction<'_>| {
            transaction.execute("insert into rounds values ($1, $2)", &[&id, &next]).await
        };
        let written = session.write(&mut self.leader, insert).await;
        written.context("the leader never fails here")?;
        self.version = next;
        self.carry(&session);
        place.checker.wrote(&self.name, "version", next.unsigned_abs());
        Ok(())
    }

    async fn look(&mut self, place: &Place) {
        let reading = place.checker.begin(&self.name, "version");
        let session = match place.carries {
            Carries::Session => self.request(place),
            Carries::Nothing => place.client.session(SessionOptions::new(PARTITION)),
        };
        let id = self.id;
        let newest = async |client: &tokio_postgres::Client| {
            let query = "select max(version) from rounds where visitor = $1";
            client.query_one(query, &[&id]).await?.try_get::<_, Option<i64>>(0)
        };
        let read: Result<Read<Option<i64>>, ReadError<_, Error>> =
            session.read(&place.pool, &Policy::default(), newest).await;
        if place.carries == Carries::Session {
            self.carry(&session);
        }
        match read {
            Ok(read) => {
                self.selected_again += u64::from(read.selects > 1);
                let seen = read.value.map(i64::unsigned_abs);
                _ = place.checker.end(reading, seen, &answer_of(&read));
            }
            Err(_) => self.unanswered += 1,
        }
    }

    fn carry(&mut self, session: &Session) {
        if !self.by_name {
            self.tokens = session.tokens();
        }
    }
}

fn answer_of(read: &Read<Option<i64>>) -> Answer {
    let node = read.node.name.clone();
    if read.stale.is_some() || !read.met.contains(&Guarantee::ReadYourWrites) {
        Answer::Flagged(node)
    } else if read.node.role == Role::Leader {
        Answer::Leader(node)
    } else {
        Answer::Replica(node)
    }
}
