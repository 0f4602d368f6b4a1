//! People, devices and jobs: each has a client of its own and nothing but what it carries.
//!
//! Every read and write is one request of an application: a session made from what the visitor
//! carries, one scope of the public client, and what the session carries afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_client::{
    AboveCap, Client, ClientOptions, DirectPool, Lag, Level, Policy, ReadError, Role, Session,
    SessionOptions, WaitOutcome, WaitTarget,
};
use tokio_postgres::Error;

use crate::postgres::Server;
use crate::service::{DATABASE, PARTITION};

/// Connections one visitor has to one server.
const CONNECTIONS: usize = 2;
const USER: &str = "postgres";

/// What a visitor's session is known by.
#[derive(Clone, Debug)]
pub(super) enum Whose {
    /// By nothing: it remembers nothing and is promised nothing.
    Nobody,
    /// By the token that it carries from request to request, as in a cookie.
    Carried,
    /// By a user id, and by nothing that it carries.
    User(String),
    /// By a token that came with a message.
    Token(String),
}

/// What a read does while no standby has what its session wrote.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// Waits a moment, then asks the leader, as the service does by itself.
    Usual,
    /// Waits long and leaves the leader alone.
    Patient,
    /// Does not wait; above the cap it takes what a stale standby has, with a label.
    Hurried,
    /// Demands nothing: the wrong way.
    Careless,
}

impl Reading {
    fn policy(self) -> Policy {
        let policy = Policy::new(Level::Session);
        match self {
            Self::Careless => Policy::new(Level::Eventual),
            Self::Usual => policy,
            Self::Patient => policy.wait_budget(Duration::from_secs(10)).fallback(false),
            Self::Hurried => policy.wait_budget(Duration::ZERO).above_cap([AboveCap::Stale]),
        }
    }
}

/// One read, and what it found on the server it was named.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) server: String,
    /// Whether the server was named as the leader.
    pub(super) leads: bool,
    /// Whether the row was there.
    pub(super) found: bool,
    /// The label of an answer that may lack something.
    pub(super) stale: Option<Lag>,
    /// Losses that were told with it.
    pub(super) notices: u64,
    pub(super) asked_at: Instant,
    pub(super) answered_at: Instant,
}

/// How a wait ended.
#[derive(Clone, Debug)]
pub(super) struct Waited {
    /// The standby that has everything; none if the time was up.
    pub(super) server: Option<String>,
    pub(super) took: Duration,
}

/// A person at one device, or a job.
#[derive(Debug)]
pub(super) struct Visitor {
    client: Client,
    pool: DirectPool,
    whose: Whose,
    cookies: Vec<String>,
    careless: bool,
}

impl Visitor {
    /// Comes with a client of its own; a careless one demands nothing.
    ///
    /// # Errors
    /// When the service cannot be reached.
    pub(super) async fn arrive(endpoint: &str, whose: Whose, careless: bool) -> Result<Self> {
        let client = Client::connect(ClientOptions::new(endpoint)).await?;
        let mut config = tokio_postgres::Config::new();
        config.user(USER).dbname(DATABASE).application_name("demo");
        let pool = DirectPool::new(config, CONNECTIONS);
        Ok(Self { client, pool, whose, cookies: Vec::new(), careless })
    }

    /// The session of one request.
    fn session(&self, forget: bool) -> Session {
        let options = SessionOptions::new(PARTITION).tokens(self.cookies.iter().cloned());
        let options = match &self.whose {
            _ if forget => SessionOptions::new(PARTITION),
            Whose::Nobody => SessionOptions::new(PARTITION),
            Whose::Carried => options,
            Whose::User(id) => SessionOptions::new(PARTITION).subject(id),
            Whose::Token(token) => options.token(token),
        };
        self.client.session(options)
    }

    fn keep(&mut self, session: &Session) {
        self.cookies = session.tokens();
    }

    /// The token that a message of this visitor would carry.
    ///
    /// # Errors
    /// When it wrote and read nothing, or the service does not answer.
    pub(super) async fn token(&self) -> Result<String> {
        let token = self.session(false).token().await?;
        token.context("a session that wrote nothing has no token")
    }

    /// Writes a form on the leader; when it returns, later reads of the session have it.
    ///
    /// # Errors
    /// When it is not written, or not recorded.
    pub(super) async fn save(&mut self, leader: &Server, form: i64, words: &str) -> Result<()> {
        let mut connection = leader.connect(USER, DATABASE).await?;
        let session = self.session(false);
        let insert = "insert into form values ($1, $2)";
        let written = session.write(&mut connection, async |transaction| {
            transaction.execute(insert, &[&form, &words]).await
        });
        written.await.with_context(|| format!("row {form} was not saved"))?;
        self.keep(&session);
        Ok(())
    }

    /// Looks for a form where the service says.
    ///
    /// # Errors
    /// When it is refused, or no named server could be read.
    pub(super) async fn read(
        &mut self,
        form: i64,
        reading: Reading,
    ) -> Result<Seen, ReadError<bool, Error>> {
        let session = self.session(self.careless);
        let query = "select exists (select from form where id = $1)";
        let reading = if self.careless { Reading::Careless } else { reading };
        let (policy, asked_at) = (reading.policy(), Instant::now());
        let read = session.read(&self.pool, &policy, async |client| {
            client.query_one(query, &[&form]).await?.try_get(0)
        });
        let read = read.await?;
        if !self.careless {
            self.keep(&session);
        }
        Ok(Seen {
            server: read.node.name,
            leads: read.node.role == Role::Leader,
            found: read.value,
            stale: read.stale,
            notices: u64::try_from(session.take_notices().len()).unwrap_or(u64::MAX),
            asked_at,
            answered_at: Instant::now(),
        })
    }

    /// Waits until some standby has what the session wrote and read.
    ///
    /// # Errors
    /// When the wait cannot be decided.
    pub(super) async fn wait(&mut self, budget: Duration) -> Result<Waited> {
        let session = self.session(self.careless);
        let begun = Instant::now();
        let waited = session.wait(WaitTarget::Any, budget).await?;
        let server = if let WaitOutcome::Fresh(served) = waited.outcome {
            Some(served.node.name)
        } else {
            None
        };
        Ok(Waited { server, took: begun.elapsed() })
    }
}
