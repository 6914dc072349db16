//! Where a database may lie.
use crate::config::Config;
use fencelock_core::{Error, ErrorKind, Result};
use std::path::Path;

/// Locks and shared memory of files work on these, for all processes of the host.
const GOOD: [(u64, &str); 8] = [
    (0xef53, "ext"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlayfs"),
];
/// On these they do not, or not between hosts, or not between the ways that lead to a file. Only to call them by their name: what
/// is on neither list is refused, too.
const BAD: [(u64, &str); 12] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x786f_4256, "vboxsf"),
];

/// That of the folder, or of the nearest one above it that is there.
pub(crate) fn check(config: &Config, folder: &Path, path: &Path) -> Result<()> {
    let there = folder.ancestors().find(|folder| folder.exists());
    let Some(Ok(stat)) = there.map(rustix::fs::statfs) else { return Ok(()) };
    let refused = refused(u64::from_ne_bytes(stat.f_type.to_ne_bytes()) & 0xffff_ffff);
    let Some(name) = refused.filter(|_| !config.trust_filesystem) else { return Ok(()) };
    let message = format!("file locks cannot be relied on there (file system {name})");
    Err(Error::new(ErrorKind::Unsupported, "connect", message)
        .with("database", path.display())
        .hint("give a path on a local disk, use an engine over the network, or add ?filesystem=trust"))
}
/// What to call one that is not good enough.
fn refused(magic: u64) -> Option<String> {
    if GOOD.iter().any(|(good, _)| *good == magic) {
        return None;
    }
    let known = BAD.iter().find(|(bad, _)| *bad == magic);
    Some(known.map_or_else(|| format!("{magic:#x}"), |(_, name)| (*name).to_owned()))
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: FUSE taken for a good one.
    use super::*;

    #[test]
    fn what_is_not_known_to_be_good_is_refused_by_its_name() {
        for (magic, name) in GOOD {
            assert_eq!(refused(magic), None, "{name}");
        }
        for (magic, name) in BAD {
            assert_eq!(refused(magic).as_deref(), Some(name));
        }
        // procfs, and nothing at all.
        assert_eq!(refused(0x9fa0).as_deref(), Some("0x9fa0"));
        assert_eq!(refused(0).as_deref(), Some("0x0"));
        // The page names the good ones.
        let page = include_str!("docs.md");
        let named = page.lines().find(|line| line.starts_with("| `filesystem`")).expect("the key of the URL");
        for (_, name) in GOOD {
            assert!(named.contains(name), "{name}");
        }
    }
}
