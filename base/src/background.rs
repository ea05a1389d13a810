//! Threads whose work can wait, such as merging.

/// Makes the calling thread stand back: where processors are scarce, others come first. It still gets a share, so that
/// whoever waits for it does not wait for ever. Without effect where the system has no priorities of threads.
pub fn stand_back() {
    // On Linux a priority is a thread's, whatever the name of the call says. A hint: whether it is taken changes nothing
    // that anybody can see but time.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        if getpriority_process(None).is_ok_and(|now| now < STEPS_BACK) {
            let _ = setpriority_process(None, STEPS_BACK);
        }
    }
}

/// On the system's scale from 0 to 19: about a quarter of the share of a thread that does not stand back.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
const STEPS_BACK: i32 = 6;

#[cfg(test)]
mod tests {
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    #[test]
    fn only_the_calling_thread_stands_back() {
        let before = rustix::process::getpriority_process(None).expect("there is one");
        let after = std::thread::spawn(|| {
            super::stand_back();
            rustix::process::getpriority_process(None).expect("there is one")
        });
        assert_eq!(after.join().expect("it ends"), super::STEPS_BACK.max(before));
        assert_eq!(rustix::process::getpriority_process(None).expect("there is one"), before);
    }
}
