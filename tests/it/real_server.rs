//! etcd and kube-apiserver as processes of the tests, soaks and benchmarks.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use unikai::devcluster::apiserver::Identity;

use crate::free_port::free_port;

/// How to start and to reach them. Their data and logs are in a folder.
pub struct RealServer {
    /// The command lines of etcd and of kube-apiserver.
    pub commands: [String; 2],
    port: u16,
}

impl RealServer {
    /// With binaries from the folder `assets`, and further flags for kube-apiserver. There is no controller manager. Writes keys and tokens into the folder.
    pub fn prepare(assets: &Path, folder: &Path, flags: &str) -> anyhow::Result<Self> {
        let [etcd, peer, port] = [(); 3].map(|()| free_port());
        let key = rcgen::KeyPair::generate()?;
        std::fs::write(folder.join("sa.key"), key.serialize_pem())?;
        std::fs::write(folder.join("sa.pub"), key.public_key_pem())?;
        let operator = Identity::operator();
        let tokens = format!(
            "t-admin,admin,u1,\"system:masters\"\nt-operator,{},u2,\"{}\"\n",
            operator.user,
            operator.groups.join(",")
        );
        std::fs::write(folder.join("tokens.csv"), tokens)?;
        let (at, assets) = (folder.display(), assets.display());
        let etcd_command = format!(
            "{assets}/etcd --data-dir {at}/etcd --unsafe-no-fsync --log-level warn --quota-backend-bytes 8589934592 \
             --listen-client-urls http://127.0.0.1:{etcd} --advertise-client-urls http://127.0.0.1:{etcd} \
             --listen-peer-urls http://127.0.0.1:{peer} --initial-advertise-peer-urls http://127.0.0.1:{peer} \
             --initial-cluster default=http://127.0.0.1:{peer} >>{at}/etcd.log 2>&1"
        );
        let server_command = format!(
            "{assets}/kube-apiserver --etcd-servers=http://127.0.0.1:{etcd} --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
             --secure-port={port} --cert-dir={at}/pki --service-cluster-ip-range=10.200.0.0/16 --service-account-issuer=https://real \
             --service-account-key-file={at}/sa.pub --service-account-signing-key-file={at}/sa.key --token-auth-file={at}/tokens.csv \
             --authorization-mode=RBAC --endpoint-reconciler-type=none {flags} >>{at}/apiserver.log 2>&1"
        );
        Ok(Self {
            commands: [etcd_command, server_command],
            port,
        })
    }

    /// The kubeconfig of `admin`, or of `operator`.
    pub fn kubeconfig(&self, who: &str) -> String {
        let server = format!("https://127.0.0.1:{}", self.port);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "real",
            "clusters": [{"name": "real", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": who, "user": {"token": format!("t-{who}")}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": who}}],
        })
        .to_string()
    }
}

/// A process under a shell that kills it when this is dropped, or this process ends, which closes the shell's standard input.
pub struct UnderShell {
    shell: Child,
}

impl UnderShell {
    /// Starts a command; `afterwards` follows when it was killed.
    pub fn start(command: &str, afterwards: &str) -> std::io::Result<Self> {
        let script =
            format!("{command} </dev/null &\nprocess=$!\ncat >/dev/null\nkill -KILL $process; wait\n{afterwards}");
        let mut shell = Command::new("sh");
        // An interrupt of the terminal's foreground processes would end the shell alone.
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let shell = shell.arg("-c").arg(script).stdin(Stdio::piped()).spawn()?;
        Ok(Self { shell })
    }
}

impl Drop for UnderShell {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// The folder with etcd and kube-apiserver, if the environment names one.
pub fn assets() -> Option<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from)
}
