//! What wrapper and minder tell each other: small frames of one size over a socket pair that keeps their bounds.
//!
//! A socket and not two pipes for one reason: it also carries the job's standard input. The minder gets its end of the
//! link as its own standard input, which is the one descriptor that a program can take over without `unsafe`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
};

/// Why the minder stopped the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The lease was about to end.
    Deadline,
    /// The wrapper said that the lock is lost.
    Lost,
    /// `--max-hold`.
    MaxHold,
    /// The wrapper died.
    WrapperGone,
    /// The minder died; told by the wrapper, never by a minder.
    MinderGone,
}

/// How the job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// It never began: the error of the system.
    NotStarted(i32),
    /// Nobody saw it.
    Unknown,
}

/// A message of either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// To the minder: the lease now ends at this moment.
    Deadline(u64),
    /// To the minder: this signal for the job.
    Signal(i32),
    /// To the minder: the lock is lost, KILL at once (SAFETY R2).
    Kill,
    /// To the wrapper: the job is there and gets what the terminal sends.
    Started,
    /// To the wrapper: this process does not end; the system's error, or 0 when there was none.
    Stuck(i32, i32),
    /// To the wrapper: the whole tree is gone.
    Ended(End, Option<Reason>),
}

const SIZE: usize = 10;
type Bytes = [u8; SIZE];

impl Frame {
    fn encode(self) -> Bytes {
        let pair = |a: i32, b: i32| {
            let mut word = [0; 8];
            word[..4].copy_from_slice(&a.to_le_bytes());
            word[4..].copy_from_slice(&b.to_le_bytes());
            word
        };
        let (tag, detail, word) = match self {
            Self::Deadline(at) => (1, 0, at.to_le_bytes()),
            Self::Signal(n) => (2, 0, pair(n, 0)),
            Self::Kill => (3, 0, [0; 8]),
            Self::Started => (4, 0, [0; 8]),
            Self::Stuck(pid, error) => (5, 0, pair(pid, error)),
            Self::Ended(end, reason) => {
                let reason = match reason {
                    None => 0,
                    Some(Reason::Deadline) => 1,
                    Some(Reason::Lost) => 2,
                    Some(Reason::MaxHold) => 3,
                    Some(Reason::WrapperGone) => 4,
                    Some(Reason::MinderGone) => 5,
                };
                let (how, n) = match end {
                    End::Exited(n) => (0, n),
                    End::Signaled(n) => (1, n),
                    End::NotStarted(n) => (2, n),
                    End::Unknown => (3, 0),
                };
                (6, reason, pair(n, how))
            }
        };
        let mut bytes = [0; SIZE];
        bytes[0] = tag;
        bytes[1] = detail;
        bytes[2..].copy_from_slice(&word);
        bytes
    }

    fn decode(bytes: &Bytes) -> Option<Self> {
        let [tag, detail, w @ ..] = *bytes;
        let (a, b) = (i32::from_le_bytes([w[0], w[1], w[2], w[3]]), i32::from_le_bytes([w[4], w[5], w[6], w[7]]));
        Some(match tag {
            1 => Self::Deadline(u64::from_le_bytes(w)),
            2 => Self::Signal(a),
            3 => Self::Kill,
            4 => Self::Started,
            5 => Self::Stuck(a, b),
            6 => {
                let reason = match detail {
                    0 => None,
                    1 => Some(Reason::Deadline),
                    2 => Some(Reason::Lost),
                    3 => Some(Reason::MaxHold),
                    4 => Some(Reason::WrapperGone),
                    5 => Some(Reason::MinderGone),
                    _ => return None,
                };
                let end = match b {
                    0 => End::Exited(a),
                    1 => End::Signaled(a),
                    2 => End::NotStarted(a),
                    _ => End::Unknown,
                };
                Self::Ended(end, reason)
            }
            _ => return None,
        })
    }
}

/// What [`Link::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Frame(Frame),
    /// Nothing now; only without waiting.
    Nothing,
    /// The other side is gone.
    Closed,
}

/// One end of the connection between wrapper and minder.
pub(super) struct Link(OwnedFd);

impl Link {
    /// Two connected ends; the second becomes the standard input of the minder.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// The minder's end: what it was given as standard input.
    pub(super) fn from_stdin() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// A second handle on the same end, for another thread.
    pub(super) fn another(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Sends without ever waiting. A frame that does not fit is dropped: the other side has been stopped for long. It then
    /// misses a later deadline, or an order to kill, after which the wrapper does not wait for a stopped minder anyway.
    pub(super) fn send(&self, frame: Frame) {
        let _ = send(&self.0, &frame.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// The next frame, waited for or not. Frames that this build does not know are passed over.
    pub(super) fn receive(&self, wait: bool) -> Received {
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        // A peer that dies with unread frames in its queue is told once as a reset, ahead of the frames that it had
        // still sent: one more call gets those.
        let mut resets = 0;
        loop {
            let mut bytes = [0; SIZE];
            match recv(&self.0, &mut bytes, flags) {
                Ok((_, 0)) => return Received::Closed,
                Ok((_, SIZE)) => {
                    if let Some(frame) = Frame::decode(&bytes) {
                        return Received::Frame(frame);
                    }
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Received::Nothing,
                Err(Errno::CONNRESET) if resets == 0 => resets += 1,
                Err(_) => return Received::Closed,
            }
        }
    }

    /// Hands a descriptor to the other side.
    pub(super) fn send_descriptor(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&self.0, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Takes the descriptor that the other side hands over as the first thing. `None`: it is gone.
    pub(super) fn receive_descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let got = recvmsg(&self.0, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC);
            match got {
                Err(Errno::INTR) => {}
                Ok(message) if message.bytes > 0 => {
                    let found = control.drain().find_map(|message| match message {
                        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                        _ => None,
                    });
                    // The system drops a descriptor for which the receiver has no number left.
                    return found.map(Some).ok_or_else(|| Errno::MFILE.into());
                }
                _ => return Ok(None),
            }
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: the two halves of `pair` swapped on one side.
    #[test]
    fn every_frame_survives_the_way() {
        let (a, b) = Link::pair().expect("a socket pair");
        let b = Link(b);
        let frames = [
            Frame::Deadline(u64::MAX - 7),
            Frame::Signal(15),
            Frame::Kill,
            Frame::Started,
            Frame::Stuck(812, 1),
            Frame::Ended(End::Exited(255), None),
            Frame::Ended(End::Signaled(9), Some(Reason::MaxHold)),
            Frame::Ended(End::NotStarted(11), Some(Reason::Lost)),
            Frame::Ended(End::Unknown, Some(Reason::WrapperGone)),
        ];
        for frame in frames {
            a.send(frame);
            assert_eq!(b.receive(true), Received::Frame(frame));
        }
        assert_eq!(b.receive(false), Received::Nothing);
    }

    // Planted: `CONNRESET` taken for the end of the link.
    #[test]
    fn the_last_report_is_read_though_the_peer_left_frames_unread() {
        let (a, b) = Link::pair().expect("a socket pair");
        let b = Link(b);
        a.send(Frame::Deadline(1));
        b.send(Frame::Ended(End::Exited(0), None));
        drop(b);
        assert_eq!(a.receive(true), Received::Frame(Frame::Ended(End::Exited(0), None)));
        assert_eq!(a.receive(true), Received::Closed);
    }

    // Planted: `send` without DONTWAIT.
    #[test]
    fn a_full_link_never_blocks_and_a_closed_one_is_no_error() {
        let (a, b) = Link::pair().expect("a socket pair");
        for n in 0..10_000 {
            a.send(Frame::Deadline(n));
        }
        drop(b);
        a.send(Frame::Kill);
    }
}
