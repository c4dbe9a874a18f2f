//! Parsing of requests: the URL is split into verb, resource, namespace, name and subresource, and its query.

use http::Method;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The verb's name in discovery, roles and audit logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// True for verbs that change something.
    pub fn is_write(self) -> bool {
        match self {
            Verb::Get | Verb::List | Verb::Watch => false,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => true,
        }
    }
}

/// The query of a URL, decoded, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part after the question mark.
    pub fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(key), percent_decode(value))
        });
        Query(pairs.collect())
    }

    /// The first value of a key; an empty value counts as absent, as in Kubernetes.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// True when the key is given as a true boolean.
    pub fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some("true" | "1" | "True" | "TRUE" | "t"))
    }
}

/// Decodes `%XX` and `+`; malformed escapes stay as they are.
fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], escaped) {
            (_, Some(byte)) => {
                decoded.push(byte);
                at += 2;
            }
            (b'+', None) => decoded.push(b' '),
            (byte, None) => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// A request for resources, by its URL and method.
#[derive(Clone, Debug)]
pub(crate) struct RequestInfo {
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub resource: String,
    /// Empty for none; `a/b` for what follows a second slash.
    pub subresource: String,
    /// Empty for cluster-scoped requests and requests over all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    pub query: Query,
}

impl RequestInfo {
    /// Takes a URL under `/api/VERSION/` or `/apis/GROUP/VERSION/` apart; `None` for any other and for methods without a meaning.
    pub fn parse(method: &Method, path: &str, query: &str) -> Option<Self> {
        let mut segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(percent_decode_path)
            .collect();
        let (group, version, mut rest) = match segments.first().map(String::as_str) {
            Some("api") if segments.len() > 2 => (String::new(), segments[1].clone(), segments.split_off(2)),
            Some("apis") if segments.len() > 3 => (segments[1].clone(), segments[2].clone(), segments.split_off(3)),
            Some(_) | None => return None,
        };
        let mut namespace = String::new();
        let in_namespace =
            rest[0] == "namespaces" && rest.len() > 2 && !matches!(rest[2].as_str(), "status" | "finalize");
        if in_namespace {
            namespace = rest[1].clone();
            rest.drain(..2);
        }
        let resource = rest.remove(0);
        let name = if rest.is_empty() { String::new() } else { rest.remove(0) };
        let query = Query::parse(query);
        let verb = match (method.as_str(), name.is_empty()) {
            ("GET" | "HEAD", _) if query.flag("watch") && rest.is_empty() => Verb::Watch,
            ("GET" | "HEAD", false) => Verb::Get,
            ("GET" | "HEAD", true) => Verb::List,
            ("POST", _) => Verb::Create,
            ("PUT", _) => Verb::Update,
            ("PATCH", _) => Verb::Patch,
            ("DELETE", false) => Verb::Delete,
            ("DELETE", true) => Verb::DeleteCollection,
            (_, _) => return None,
        };
        Some(RequestInfo {
            verb,
            group,
            version,
            resource,
            subresource: rest.join("/"),
            namespace,
            name,
            query,
        })
    }
}

/// Decodes `%XX` in a path segment, where `+` stands for itself.
fn percent_decode_path(segment: &str) -> String {
    percent_decode(&segment.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &Method, url: &str) -> String {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        RequestInfo::parse(method, path, query).map_or("none".to_owned(), |info| {
            let RequestInfo {
                verb,
                group,
                version,
                resource,
                subresource,
                namespace,
                name,
                query: _,
            } = info;
            format!(
                "{} {group}|{version} {resource}|{subresource} {namespace}|{name}",
                verb.as_str()
            )
        })
    }

    #[test]
    fn urls_are_taken_apart() {
        let cases = [
            (Method::GET, "/api/v1/pods", "list |v1 pods| |"),
            (Method::GET, "/api/v1/pods?watch=1", "watch |v1 pods| |"),
            (Method::GET, "/api/v1/namespaces/a/pods/b", "get |v1 pods| a|b"),
            (
                Method::POST,
                "/api/v1/namespaces/a/pods/b/binding",
                "create |v1 pods|binding a|b",
            ),
            (Method::GET, "/api/v1/namespaces/a", "get |v1 namespaces| |a"),
            (
                Method::PUT,
                "/api/v1/namespaces/a/finalize",
                "update |v1 namespaces|finalize |a",
            ),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/status",
                "patch |v1 namespaces|status |a",
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection apps|v1 deployments| a|",
            ),
            (
                Method::GET,
                "/apis/scheduling.run.ai/v2/queues/x%3Ay",
                "get scheduling.run.ai|v2 queues| |x:y",
            ),
            (Method::GET, "/apis/apps/v1", "none"),
            (Method::GET, "/healthz", "none"),
        ];
        for (method, url, expected) in cases {
            assert_eq!(parse(&method, url), expected, "{method} {url}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&limit=&watch=true&x=1+2");
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert_eq!(query.get("limit"), None);
        assert_eq!(query.get("x"), Some("1 2"));
        assert!(query.flag("watch"));
    }
}
