//! A server's own log, written to by us while the server is away: what a client would need years for.
use crate::ZooKeeper;
use std::{fs, io, path::Path};

impl ZooKeeper {
    /// The next node below this one that is given a number is given this. The server, which is alone, is ended, and begun again.
    ///
    /// # Panics
    /// It cannot be, or serves no more.
    pub fn count_from(&self, path: &str, number: i32) {
        let said = self.command(0, "srvr").unwrap_or_else(|e| panic!("srvr: {e}"));
        let zxid = said.lines().find_map(|line| i64::from_str_radix(line.strip_prefix("Zxid: 0x")?, 16).ok());
        let zxid = zxid.unwrap_or_else(|| panic!("it says no zxid: {said}")) + 1;
        self.kill(0);
        let folder = self.folder().path().join("m0/data/version-2");
        append(&folder, zxid, path, number).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        self.restart(0);
    }
}
/// Two transactions: a node is made, by which its parent's counter is set, and deleted.
fn append(folder: &Path, zxid: i64, parent: &str, counter: i32) -> io::Result<()> {
    const CREATE: i32 = 1;
    const DELETE: i32 = 2;
    let node = format!("{parent}/%counted");
    let mut log = [&b"ZKLG"[..], &2_i32.to_be_bytes(), &0_i64.to_be_bytes()].concat();
    for (zxid, kind) in [(zxid, CREATE), (zxid + 1, DELETE)] {
        // Of no session, at no time.
        let mut txn =
            [&0_i64.to_be_bytes()[..], &0_i32.to_be_bytes(), &zxid.to_be_bytes(), &0_i64.to_be_bytes()].concat();
        txn.extend(kind.to_be_bytes());
        words(&mut txn, &node);
        if kind == CREATE {
            words(&mut txn, "");
            // Everybody may do everything with it.
            txn.extend([1_i32.to_be_bytes(), 31_i32.to_be_bytes()].concat());
            words(&mut txn, "world");
            words(&mut txn, "anyone");
            txn.push(0);
            txn.extend(counter.to_be_bytes());
        }
        log.extend(i64::from(adler32(&txn)).to_be_bytes());
        log.extend(length(txn.len()));
        log.extend(txn);
        log.push(b'B');
    }
    fs::write(folder.join(format!("log.{zxid:x}")), log)
}
fn words(out: &mut Vec<u8>, words: &str) {
    out.extend(length(words.len()));
    out.extend(words.as_bytes());
}
fn length(len: usize) -> [u8; 4] {
    i32::try_from(len).unwrap_or(i32::MAX).to_be_bytes()
}
/// RFC 1950.
fn adler32(bytes: &[u8]) -> u32 {
    const MOD: u32 = 65_521;
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % MOD;
        (a, (a + b) % MOD)
    });
    b << 16 | a
}
