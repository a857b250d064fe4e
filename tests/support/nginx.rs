//! A real nginx as the server behind the gateway, where it is installed.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use super::ports::free_port;
use super::{Scratch, tool, wait_until};

#[derive(Debug)]
pub(crate) struct Nginx {
    child: Child,
    address: SocketAddr,
    _scratch: Scratch,
}

impl Nginx {
    /// `listen` is what its listener has besides its address. `None` if there is no nginx.
    pub(crate) fn start(listen: &str, server: &str, locations: &str) -> Option<Nginx> {
        let version = tool("nginx", Command::new("nginx").arg("-v").output())?;
        assert!(version.status.success(), "{version:?}");
        let scratch = Scratch::new();
        let folder = scratch.path().display().to_string();
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|it| format!("{it}_temp_path {folder}/{it};"))
            .join("\n");
        let file = scratch.file(
            "nginx.conf",
            &format!(
                "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n\
                 events {{ }}\n\
                 http {{ access_log off; {paths}\n\
                 server {{ listen {address} {listen}; {server} {locations} }} }}\n"
            ),
        );
        let mut command = Command::new("nginx");
        command.arg("-p").arg(scratch.path()).arg("-c").arg(file);
        command.arg("-e").arg(scratch.path().join("error.log"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn().unwrap();
        let nginx = Nginx { child, address, _scratch: scratch };
        wait_until("nginx listens", || TcpStream::connect(address).is_ok());
        Some(nginx)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
