//! The minder by itself: it is told its orders as the wrapper tells them, and judged by what it answers and starts.

mod common;

use std::io::{IoSlice, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use common::{Place, binary, end_of, start};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    send, sendmsg, socketpair,
};

/// Frames of `wire.rs`: what they are, a detail, and a word.
type Frame = [u8; 10];

/// The frames of a minder whose lease ended just after the boot, and who is told this before it looks.
fn answers(place: &Place, told: &[Frame]) -> Vec<Frame> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a link");
    hand_over(&ours);
    for frame in told {
        send(&ours, frame, SendFlags::empty()).expect("a frame");
    }
    // What it says must come, and its end is heard of when nobody else has its side of the link.
    set_socket_timeout(&ours, Timeout::Recv, Some(common::STUCK)).expect("a limit");
    let mut minder = {
        let mut minder = Command::new(binary());
        minder.args(["minder", "-", "term", "1000000", "1000000", "5", "-", "--", "touch"]).arg(place.path("ran"));
        start(minder.stdin(theirs))
    };
    let mut frames = Vec::new();
    loop {
        let mut frame = [0; 10];
        let (_, n) = recv(&ours, &mut frame, RecvFlags::empty()).expect("an answer");
        // The end of the link, once no other process has its end of it.
        if n == 0 || frame[0] == 6 {
            frames.extend((n > 0).then_some(frame));
            break;
        }
        frames.push(frame);
    }
    assert!(end_of(&mut minder).success());
    frames
}

/// The first thing of all is the job's standard input.
fn hand_over(link: &OwnedFd) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let stdin = stdin();
    let fds = [stdin.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(link, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).expect("a descriptor");
}

// Planted: the job started before the first look at the clock, and at what came meanwhile.
#[test]
fn one_that_comes_too_late_starts_nothing() {
    let place = Place::new();
    // Not started, for the end of the lease.
    assert_eq!(answers(&place, &[]), [[6, 1, 0, 0, 0, 0, 2, 0, 0, 0]]);
    assert!(!place.path("ran").exists());
    // Not started, for the loss that it was told.
    let renewed: Frame = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0x70];
    assert_eq!(answers(&place, &[renewed, [3, 0, 0, 0, 0, 0, 0, 0, 0, 0]]), [[6, 2, 0, 0, 0, 0, 2, 0, 0, 0]]);
    assert!(!place.path("ran").exists());
    // The renewal came in time: started, and ended with 0.
    assert_eq!(answers(&place, &[renewed]), [[4, 0, 0, 0, 0, 0, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0, 0, 0, 0, 0]]);
    assert!(place.path("ran").exists());
}
