//! The kubelet's pod resources API, version 1: one call, `List`, by gRPC over the kubelet's unix socket.
//!
//! gRPC's framing of one message each way is a few lines, so there is no client of it but HTTP/2's. Each call has a connection of its own, which shows a
//! kubelet that was started again at once.

use std::path::Path;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// Where the kubelet's socket usually is.
pub const FOLDER: &str = "/var/lib/kubelet/pod-resources";
/// The socket.
pub const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// So long may a call take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// So many bytes may an answer have.
const ANSWER_MAX: usize = 16 << 20;
/// Before a message: a byte that says whether it is compressed, and four with its length.
const PREFIX: usize = 5;
/// The authority of a socket is of no consequence.
const LIST: &str = "http://localhost/v1.PodResourcesLister/List";

/// What the kubelet gave to the pods of its node.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodResourcesResponse {
    /// The pods.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

/// What a pod was given.
#[derive(Clone, PartialEq, Message)]
pub struct PodResources {
    /// The pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// What a container was given.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerResources {
    /// The container.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Devices of device plugins.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// CPUs that no other container uses.
    #[prost(int64, repeated, tag = "3")]
    pub cpu_ids: Vec<i64>,
    /// Memory that was reserved for it.
    #[prost(message, repeated, tag = "4")]
    pub memory: Vec<ContainerMemory>,
}

/// Devices of one resource in the same zones.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerDevices {
    /// The resource.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// The devices.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
    /// Where they are.
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// A block of memory.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerMemory {
    /// `memory`, or hugepages of a size.
    #[prost(string, tag = "1")]
    pub memory_type: String,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// Where it is.
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// The NUMA zones of something.
#[derive(Clone, PartialEq, Message)]
pub struct TopologyInfo {
    /// The zones.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<NumaNode>,
}

/// A NUMA zone.
#[derive(Clone, PartialEq, Message)]
pub struct NumaNode {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Why the kubelet did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no socket, or nobody behind it.
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    /// The connection broke.
    #[error("HTTP/2: {0}")]
    Http(#[from] hyper::Error),
    /// It took too long.
    #[error("no answer within {} seconds", TIMEOUT.as_secs())]
    Timeout,
    /// The answer is too long, or broke off.
    #[error("the answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not what gRPC says it is to be.
    #[error("the answer is not gRPC's: {0}")]
    Frame(&'static str),
    /// The kubelet says that it failed.
    #[error("the kubelet says: status {0} {1}")]
    Status(String, String),
    /// The message is not what the API says it is to be.
    #[error("the message cannot be read: {0}")]
    Decode(#[from] prost::DecodeError),
}

/// Asks the kubelet behind a socket what its pods were given.
///
/// # Errors
/// When it does not say so within ten seconds.
pub async fn list(socket: &Path) -> Result<ListPodResourcesResponse, Error> {
    tokio::time::timeout(TIMEOUT, call(socket))
        .await
        .unwrap_or(Err(Error::Timeout))
}

async fn call(socket: &Path) -> Result<ListPodResourcesResponse, Error> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // Ends with this call.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    // A request without fields is a message without bytes.
    let request = Request::post(LIST)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(Bytes::from_static(&[0; PREFIX])))
        .map_err(|_| Error::Frame("the request is none"))?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    if head.status != StatusCode::OK {
        return Err(Error::Status(head.status.as_str().to_owned(), String::new()));
    }
    let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(Error::Body)?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    succeeded(&head.headers, &trailers)?;
    Ok(ListPodResourcesResponse::decode(message(body.to_bytes())?)?)
}

/// The status follows the message; where there is no message it is in the head.
fn succeeded(head: &HeaderMap, trailers: &HeaderMap) -> Result<(), Error> {
    let text = |name: &str| {
        let value = trailers.get(name).or_else(|| head.get(name))?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    match text("grpc-status") {
        Some(status) if status == "0" => Ok(()),
        Some(status) => Err(Error::Status(status, text("grpc-message").unwrap_or_default())),
        None => Err(Error::Frame("no status")),
    }
}

/// The one message of an answer.
fn message(mut body: Bytes) -> Result<Bytes, Error> {
    if body.len() < PREFIX {
        return Err(Error::Frame("no message"));
    }
    let (compressed, length) = (body.get_u8(), body.get_u32());
    if compressed != 0 {
        return Err(Error::Frame("a compressed message"));
    }
    if usize::try_from(length) != Ok(body.len()) {
        return Err(Error::Frame("a message of another length"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_its_prefix_says() {
        let read = |bytes: &'static [u8]| message(Bytes::from_static(bytes)).ok();
        assert_eq!(read(&[0, 0, 0, 0, 0]).as_deref(), Some(&[][..]));
        assert_eq!(read(&[0, 0, 0, 0, 2, 7, 8]).as_deref(), Some(&[7, 8][..]));
        for wrong in [
            &[][..],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 0],
            &[0, 0, 0, 0, 1],
            &[0, 255, 255, 255, 255, 1],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_status_follows_or_stands_in_the_head() {
        let with =
            |status: &'static str| HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
        let (none, good, bad): (HeaderMap, _, _) = (HeaderMap::new(), with("0"), with("8"));
        succeeded(&none, &good).unwrap();
        succeeded(&good, &none).unwrap();
        for (head, trailers) in [(&none, &none), (&none, &bad), (&bad, &none), (&good, &bad)] {
            succeeded(head, trailers).unwrap_err();
        }
    }
}
