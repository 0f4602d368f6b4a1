//! Ports on loopback that no other test takes while they are held, not even between two starts
//! of one server.
//!
//! Does not open the port: whoever holds the lease does.

use std::fs::{File, TryLockError};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, bail};
use tokio::net::TcpSocket;

use crate::machine;

/// Below the range from which the kernel takes ports for outgoing connections.
const FIRST: u16 = 10_500;
const COUNT: u16 = 20_000;
const TRIES: usize = 2_000;

/// One reserved port on loopback; other tests and processes of the lab get other ones.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Locked as long as the lease lives; the kernel unlocks it when this process dies.
    _lock: File,
}

impl Port {
    /// Reserves a free port.
    ///
    /// # Errors
    /// When the lab's folder cannot be written or no port is free.
    pub fn reserve() -> Result<Self> {
        let folder = machine::lab_dir()?.join("ports");
        machine::open_dir(&folder)?;
        for _ in 0..TRIES {
            if let Some(port) = try_reserve(&folder, FIRST + fastrand::u16(0..COUNT))? {
                return Ok(port);
            }
        }
        bail!("no free port between {FIRST} and {}", FIRST + COUNT)
    }

    /// The number of the port.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The port with the loopback address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}

fn try_reserve(folder: &Path, number: u16) -> Result<Option<Port>> {
    let lock = File::create(folder.join(number.to_string()))
        .context("cannot write the port leases; set TIDEGATE_LAB_DIR to a folder of your own")?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error).context("cannot lock a port lease"),
    }
    // Programs outside the lab take ports without asking. Bound and not opened: a process that is
    // just being started has a copy of the socket for a moment, and must keep the port from nobody.
    let probe = TcpSocket::new_v4().context("no socket")?;
    probe.set_reuseaddr(true).context("no socket")?;
    match probe.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, number))) {
        Ok(()) => Ok(Some(Port { number, _lock: lock })),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::TcpListener;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    use anyhow::anyhow;

    #[test]
    fn a_port_is_taken_by_who_listens_and_free_at_once_when_it_was_reserved() -> Result<()> {
        let folder = machine::lab_dir()?.join("ports");
        machine::open_dir(&folder)?;
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let taken = listening.local_addr()?.port();
        assert!(try_reserve(&folder, taken)?.is_none(), "who listens keeps it");

        // Programs that are started meanwhile have copies of all that is open.
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let spawning = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut program = Command::new("true");
                    drop(program.current_dir("/").status());
                }
            });
            let opened = (0..2_000).try_for_each(|_| {
                let port = Port::reserve()?;
                TcpListener::bind(port.address()).map(drop).context("it was reserved")
            });
            stop.store(true, Ordering::Relaxed);
            spawning.join().map_err(|_| anyhow!("a panic"))?;
            opened
        })
    }

    #[test]
    fn a_held_port_is_given_to_nobody_else() -> Result<()> {
        let held = (0..50).map(|_| Port::reserve()).collect::<Result<Vec<Port>>>()?;
        let numbers: BTreeSet<u16> = held.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), held.len());
        let folder = machine::lab_dir()?.join("ports");
        let again = try_reserve(&folder, held[0].number())?;
        assert!(again.is_none());
        Ok(())
    }
}
