//! The kubelet's pod resources API, version 1: one call, `List`, by gRPC over the kubelet's unix socket.
//!
//! gRPC's framing of one message in each direction is a few lines, so only an HTTP/2 client is needed. Each call uses a new connection, so a
//! restarted kubelet is noticed at once.

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

/// Default path of the kubelet's socket.
pub const FOLDER: &str = "/var/lib/kubelet/pod-resources";
/// The socket.
pub const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";
/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of an answer.
const ANSWER_MAX: usize = 16 << 20;
/// Frame header: a byte for compression, and four for the length.
const PREFIX: usize = 5;
/// The authority is not used on a socket.
const LIST: &str = "http://localhost/v1.PodResourcesLister/List";

/// The kubelet's answer.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodResourcesResponse {
    /// The pods.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

/// Resources of a pod.
#[derive(Clone, PartialEq, Message)]
pub struct PodResources {
    /// Name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// Resources of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerResources {
    /// Name of the container.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Devices of device plugins.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// CPUs for its exclusive use.
    #[prost(int64, repeated, tag = "3")]
    pub cpu_ids: Vec<i64>,
    /// Memory reserved for it.
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
    /// Their zones.
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
    /// Its zones.
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

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket does not exist, or does not accept connections.
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    /// The connection broke.
    #[error("HTTP/2: {0}")]
    Http(#[from] hyper::Error),
    /// The timeout.
    #[error("no answer within {} seconds", TIMEOUT.as_secs())]
    Timeout,
    /// The answer is too long, or incomplete.
    #[error("the answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not valid gRPC.
    #[error("the answer is not gRPC's: {0}")]
    Frame(&'static str),
    /// The kubelet reports an error.
    #[error("the kubelet says: status {0} {1}")]
    Status(String, String),
    /// The message does not decode.
    #[error("the message cannot be read: {0}")]
    Decode(#[from] prost::DecodeError),
}

/// Lists the resources of all pods.
///
/// # Errors
/// When there is no valid answer within ten seconds.
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
    // A request without fields is an empty message.
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

/// The status is in the trailers; without a message, in the headers.
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
    fn a_message_has_the_length_of_its_prefix() {
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
    fn the_grpc_status_is_in_trailers_or_headers() {
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
