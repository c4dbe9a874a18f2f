//! What an expression may cost, from its tokens, before it is parsed: whether it is too deep, and how many steps it may take for one device.
//!
//! The estimate is coarse, but no text has a cost that it does not see: literals and comments are recognised as CEL does.

use crate::api::limits;

/// Limit on the operators of an expression: each may add a level to its tree.
const MOST_OPERATORS: usize = 120;
/// Limit on nested brackets, and on chains of field accesses.
const DEEPEST: usize = 16;
/// Limit on the attributes and capacities of a device.
const MOST_ENTRIES: usize = 32;
/// Bytes of a text attribute of a device.
const ATTRIBUTE: usize = 64;
/// Calls that loop over a list.
const LOOPS: [&str; 8] = [
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "map",
    "filter",
    "sortBy",
    "distinct",
];
/// Calls that name a value.
const NAMING: [&str; 3] = ["bind", "optMap", "optFlatMap"];
/// Calls whose result may be as long as the product of two texts.
const GROWING: [&str; 3] = ["replace", "join", "format"];
/// Tokens in a loop that are evaluated in a step.
const TOKENS_PER_STEP: usize = 64;
/// Bytes that are copied in a step.
const BYTES_PER_STEP: usize = 1_024;
/// How many times as large a text may be with its quotes escaped.
const QUOTED: usize = 2;
/// Bytes of an attribute or capacity with its name, where a whole map of them is copied.
const ENTRY: usize = 256;
/// Bytes of the attributes, or the capacities, of one domain.
const DOMAIN: usize = ENTRY * MOST_ENTRIES;

/// A token. Spaces and comments are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    /// A name or number.
    Word(&'t str),
    /// A literal of text or bytes, as it is written between its quotes.
    Text(&'t str),
    /// Any other character.
    Sign(char),
}

/// What an expression may cost for one device.
#[derive(Debug, PartialEq, Eq)]
pub struct Cost {
    /// Steps beside those that every expression takes, and without those of regular expressions.
    pub steps: usize,
    /// Entries of a list that it loops over.
    pub entries: usize,
}

impl Cost {
    /// Estimates the cost.
    ///
    /// # Errors
    /// If the expression is so deep that parsing or evaluating it could exhaust the stack, or could take too many steps.
    pub fn of(text: &str) -> Result<Self, &'static str> {
        let tokens = tokens(text);
        if too_deep(&tokens) {
            return Err("the expression is too complex");
        }
        let variables = Variables::of(&tokens);
        let entries = entries(text.len(), &tokens, &variables);
        let copies = growth(text.len(), &tokens, &variables) / BYTES_PER_STEP;
        let domains = variables.domains * DOMAIN / BYTES_PER_STEP;
        let steps = loops(&tokens, entries, copies).saturating_add(copies + domains);
        if steps > limits::CLAIM_SELECTOR_STEPS || calls(&tokens, "range").next().is_some() {
            return Err("the expression could cost too much");
        }
        Ok(Self { steps, entries })
    }
}

/// Entries of the longest list.
fn entries(length: usize, tokens: &[Token], variables: &Variables) -> usize {
    let commas = tokens.iter().filter(|token| **token == Token::Sign(',')).count();
    let repeats = variables.repeats.unwrap_or(1);
    let entries = MOST_ENTRIES.max((commas + 1).saturating_mul(repeats));
    // A text that is split is made of what stands before.
    match tokens.iter().rposition(|token| *token == Token::Word("split")) {
        Some(at) => {
            let before = tokens.get(..at).unwrap_or_default();
            let split = growth(length, before, &Variables::of(before));
            entries.max(split.saturating_mul(repeats))
        }
        None => entries,
    }
}

/// What `cel.bind`, `optMap` and `optFlatMap` add to an expression. Its values become as large as if each use of a variable were replaced by what the
/// variable stands for.
struct Variables {
    /// How many variables are all attributes, or all capacities, of a domain. Most uses of one read a single entry.
    domains: usize,
    /// Bytes that the uses of those add.
    read: usize,
    /// How many times as large the other variables may make a value; `None` if there are no others.
    repeats: Option<usize>,
}

impl Variables {
    fn of(tokens: &[Token]) -> Self {
        let mut all = Self {
            domains: 0,
            read: 0,
            repeats: None,
        };
        // Another `device` may be of any size.
        let mut declaring = NAMING.iter().chain(&LOOPS).flat_map(|name| calls(tokens, name));
        let is_shadowed = declaring.any(|arguments| variable(arguments) == Some("device"));
        for arguments in NAMING.iter().flat_map(|name| calls(tokens, name)) {
            let Some(name) = variable(arguments) else { continue };
            // The first time is the declaration.
            let uses = after(arguments, name).skip(1);
            if is_of_domain(arguments) && !is_shadowed {
                all.domains += 1;
                all.read += uses.map(of_domain).sum::<usize>();
            } else {
                let repeats = all.repeats.unwrap_or(1);
                all.repeats = Some(repeats.saturating_mul(uses.count().max(1)));
            }
        }
        all
    }
}

/// The variable that the arguments of a call begin with, in brackets or not.
fn variable<'t>(arguments: &[Token<'t>]) -> Option<&'t str> {
    arguments.iter().find_map(|token| match token {
        Token::Word(name) => Some(*name),
        Token::Text(_) | Token::Sign(_) => None,
    })
}

/// Whether these arguments of `cel.bind` name all attributes, or all capacities, of a domain.
fn is_of_domain(arguments: &[Token]) -> bool {
    matches!(
        arguments,
        [
            Token::Word(_),
            Token::Sign(','),
            Token::Word("device"),
            Token::Sign('.'),
            Token::Word("attributes" | "capacity"),
            Token::Sign('['),
            Token::Text(_),
            Token::Sign(']'),
            Token::Sign(','),
            ..
        ]
    )
}

/// Bytes that a use of such a variable adds, by what follows it.
fn of_domain(rest: &[Token]) -> usize {
    match rest {
        [Token::Sign('.' | '['), ..] => ATTRIBUTE,
        _ => DOMAIN,
    }
}

/// Whether one attribute or field of `device` is read, by what follows it.
fn is_of_one(rest: &[Token]) -> bool {
    matches!(
        rest,
        [Token::Sign('.'), Token::Word("driver" | "allowMultipleAllocations"), ..]
            | [
                Token::Sign('.'),
                Token::Word("attributes" | "capacity"),
                Token::Sign('['),
                Token::Text(_),
                Token::Sign(']'),
                Token::Sign('.' | '['),
                ..
            ]
    )
}

/// The steps of loops, each of which may copy all texts anew.
fn loops(tokens: &[Token], entries: usize, copies: usize) -> usize {
    let bodies: Vec<&[Token]> = LOOPS.iter().flat_map(|name| calls(tokens, name)).collect();
    let times = u32::try_from(bodies.len()).ok();
    let times = times.and_then(|loops| entries.checked_pow(loops));
    // Of many loops the bodies are not looked at: that would take long.
    let Some(times) = times.filter(|times| *times <= limits::CLAIM_SELECTOR_STEPS) else {
        return usize::MAX;
    };
    let sizes = bodies.iter().map(|body| {
        let domains = Variables::of(body).domains * DOMAIN / BYTES_PER_STEP;
        body.len() / TOKENS_PER_STEP + domains
    });
    let Some(largest) = sizes.max() else { return 0 };
    times.saturating_mul(1 + largest + copies)
}

/// Bytes of the longest text that an expression of this length may make. Each growing call multiplies two texts; all of them are made of what the expression names.
/// With variables, bytes of the largest value.
fn growth(length: usize, tokens: &[Token], variables: &Variables) -> usize {
    let count = |names: &[&str]| names.iter().flat_map(|name| calls(tokens, name)).count();
    let known: Vec<usize> = calls(tokens, "replace").filter_map(replaced).collect();
    let parts = 1 + count(&GROWING) - known.len();
    let as_power = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    // Of loops, only `map` makes new texts of those of another one.
    let maps = count(&["map"]);
    let adds = tokens.iter().filter(|token| **token == Token::Sign('+')).count();
    let added = (1 + adds.div_ceil(maps.max(1))).saturating_pow(as_power(maps));
    let quoted = QUOTED.saturating_pow(as_power(count(&["quote"])));
    let mut bytes = length + ATTRIBUTE * after(tokens, "device").count() + variables.read;
    if count(&["format"]) > 0 {
        // `%.400f` makes as many digits as it says.
        let numbers = tokens.iter().map(|token| match token {
            Token::Text(text) => numbers(text).max().unwrap_or_default(),
            Token::Word(_) | Token::Sign(_) => 0,
        });
        bytes = numbers.fold(bytes, usize::saturating_add);
    }
    let factors = known.into_iter().chain([added, quoted]);
    let Some(repeats) = variables.repeats else {
        let multiplied = (bytes / parts).saturating_pow(as_power(parts));
        return factors.fold(multiplied, usize::saturating_mul);
    };
    let devices = devices(tokens).saturating_sub(variables.domains);
    bytes = bytes.saturating_add(devices * all_of_device(tokens));
    // Each of several additions copies anew what those before it made.
    let once = factors.chain([repeats, 1 + adds]).fold(bytes, usize::saturating_mul);
    // A growing call may multiply a variable by itself.
    once.saturating_pow(as_power(2_usize.saturating_pow(as_power(parts - 1))))
}

/// How many times `device` stands for more than one of its attributes or fields. Of a name that is looked up, only the answer counts.
fn devices(tokens: &[Token]) -> usize {
    let all = after(tokens, "device").filter(|rest| !is_of_one(rest)).count();
    let asked = after(tokens, "in").filter(|rest| is_looked_up(rest)).count();
    all - asked
}

/// Whether it is asked if there is a domain, or an attribute of a domain, by what follows `in`.
fn is_looked_up(rest: &[Token]) -> bool {
    let [
        Token::Word("device"),
        Token::Sign('.'),
        Token::Word("attributes" | "capacity"),
        rest @ ..,
    ] = rest
    else {
        return false;
    };
    let of_domain = matches!(rest, [Token::Sign('['), Token::Text(_), Token::Sign(']'), ..]);
    let rest = if of_domain {
        rest.get(3..).unwrap_or_default()
    } else {
        rest
    };
    !matches!(rest, [Token::Sign('.' | '['), ..])
}

/// Bytes of a whole device. Each text of the expression may be a domain of it.
fn all_of_device(tokens: &[Token]) -> usize {
    let texts = tokens.iter().filter(|token| matches!(token, Token::Text(_))).count();
    DOMAIN + ENTRY * texts
}

/// How many times as long `replace` of a literal by a literal makes a text; `None`: its arguments are others.
fn replaced(arguments: &[Token]) -> Option<usize> {
    match arguments {
        [Token::Text(old), Token::Sign(','), Token::Text(new)] => {
            // An escape takes more bytes in the expression than in the text, and an empty text is found at each character.
            let plain = !old.is_empty() && !old.contains('\\');
            Some(if plain {
                new.len().div_ceil(old.len()).max(1)
            } else {
                1 + new.len()
            })
        }
        _ => None,
    }
}

/// The numbers in a text.
fn numbers(text: &str) -> impl Iterator<Item = usize> {
    let digits = text
        .split(|sign: char| !sign.is_ascii_digit())
        .filter(|digits| !digits.is_empty());
    digits.map(|digits| digits.parse().unwrap_or(usize::MAX))
}

/// The tokens between the brackets of each call of a function, those of calls in it included.
fn calls<'t>(tokens: &'t [Token<'t>], name: &'t str) -> impl Iterator<Item = &'t [Token<'t>]> {
    after(tokens, name).filter_map(|rest| match rest {
        [Token::Sign('('), rest @ ..] => rest.get(..closing(rest)),
        _ => None,
    })
}

/// The tokens after each time that a name stands there.
fn after<'t>(tokens: &'t [Token<'t>], name: &'t str) -> impl Iterator<Item = &'t [Token<'t>]> {
    let is_named = move |token: &Token| {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        *token == Token::Word(name)
    };
    let named = tokens.iter().enumerate().filter(move |&(_, token)| is_named(token));
    named.filter_map(|(at, _)| tokens.get(at + 1..))
}

/// Where the bracket is closed before these tokens, or their end.
fn closing(tokens: &[Token]) -> usize {
    let mut open = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('(') => open += 1,
            Token::Sign(')') if open == 0 => return at,
            Token::Sign(')') => open -= 1,
            Token::Word(_) | Token::Text(_) | Token::Sign(_) => {}
        }
    }
    tokens.len()
}

fn too_deep(tokens: &[Token]) -> bool {
    let (mut operators, mut chain, mut nested) = (0, 0, 0_usize);
    tokens.iter().any(|token| {
        match token {
            Token::Sign('(' | '[' | '{') => (nested, chain) = (nested + 1, chain + 1),
            Token::Sign(')' | ']' | '}') => nested = nested.saturating_sub(1),
            Token::Sign('.') => chain += 1,
            Token::Sign('|' | '&' | '+' | '-' | '*' | '/' | '%' | '?' | '!' | '<' | '>' | '=') | Token::Word("in") => {
                (operators, chain) = (operators + 1, 0);
            }
            Token::Sign(',' | ':') => chain = 0,
            Token::Sign(_) | Token::Word(_) | Token::Text(_) => {}
        }
        operators > MOST_OPERATORS || nested > DEEPEST || chain > DEEPEST
    })
}

/// The literals of an expression, as they are written.
pub fn texts(text: &str) -> impl Iterator<Item = &str> {
    tokens(text).into_iter().filter_map(|token| match token {
        Token::Text(text) => Some(text),
        Token::Word(_) | Token::Sign(_) => None,
    })
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let word = rest.find(|sign: char| !sign.is_alphanumeric() && sign != '_');
        let (word, after) = rest.split_at(word.unwrap_or(rest.len()));
        let quoted = after.starts_with(['"', '\'']);
        if quoted && word.chars().all(|sign| matches!(sign, 'r' | 'R' | 'b' | 'B')) {
            let raw = word.contains(['r', 'R']);
            let (literal, after) = literal(after, raw);
            tokens.push(Token::Text(literal));
            rest = after;
        } else if !word.is_empty() {
            tokens.push(Token::Word(word));
            rest = after;
        } else if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else {
            if !sign.is_whitespace() {
                tokens.push(Token::Sign(sign));
            }
            rest = rest.get(sign.len_utf8()..).unwrap_or_default();
        }
    }
    tokens
}

/// Splits off a literal that begins with its quote: what is between its quotes, and what follows.
fn literal(text: &str, raw: bool) -> (&str, &str) {
    let quote = match text.get(..3) {
        Some(three @ ("'''" | "\"\"\"")) => three,
        _ => text.get(..1).unwrap_or_default(),
    };
    let inside = text.get(quote.len()..).unwrap_or_default();
    let mut at = 0;
    while let Some(rest) = inside.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(quote) {
            return (
                inside.get(..at).unwrap_or_default(),
                rest.get(quote.len()..).unwrap_or_default(),
            );
        }
        let escaped = usize::from(!raw && rest.starts_with('\\'));
        let signs = rest.chars().take(1 + escaped);
        at += signs.map(char::len_utf8).sum::<usize>();
    }
    (inside, "")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// How often a token was compared with a name.
        pub static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn an_estimate_looks_at_each_token_a_limited_number_of_times() {
        let calls = 15;
        let list = vec!["a"; 4_000].join(",");
        let many = format!("{}[{list}]{}", "[1].map(a,".repeat(calls), ")".repeat(calls));
        let one = format!("[1].map(a,[{list}])");
        for text in [many, one] {
            LOOKS.set(0);
            assert_eq!(steps(&text), Err("the expression could cost too much"));
            let looks = LOOKS.get() / tokens(&text).len();
            assert!(looks < 50, "{looks} looks at each token");
        }
    }

    #[test]
    fn literals_are_told_from_code() {
        let read = |text: &str| texts(text).map(ToOwned::to_owned).collect::<Vec<_>>();
        assert_eq!(
            read(r#"'a' + "b" + r'\' + b"c" + '\'d'"#),
            ["a", "b", r"\", "c", r"\'d"]
        );
        assert_eq!(
            read("'''it's''' + \"\"\"a \"b\" c\"\"\" + ''"),
            ["it's", "a \"b\" c", ""]
        );
        assert_eq!(read("a // it's a comment\n == 'b'"), ["b"]);
        assert_eq!(read("'open"), ["open"]);
    }

    #[test]
    fn loops_are_counted_wherever_they_stand() {
        let loops = "[1].all(a, [1].all(b, [1].all(c, true)))";
        for text in [
            loops.to_owned(),
            loops.replace(".all(", ".existsOne("),
            loops.replace(".all(", " . all // here\n ("),
            format!(r"'\'' == device.driver && {loops} && '\'' == device.driver"),
            format!(r"r'\' == device.driver && {loops} && r'\' == device.driver"),
            format!("true // it's\n && {loops} // it's"),
            format!("'''\"''' == device.driver && {loops} && '''\"''' == device.driver"),
            "lists.range(1000000).size() > 0".to_owned(),
        ] {
            assert_eq!(steps(&text), Err("the expression could cost too much"), "{text}");
        }
        assert_eq!(steps("[1].all(a, [1].all(b, true))"), Ok(1_024));
        assert_eq!(steps("device.attributes['map(1)'].all == '.all('"), Ok(0));
    }

    fn steps(text: &str) -> Result<usize, &'static str> {
        Cost::of(text).map(|cost| cost.steps)
    }

    #[test]
    fn a_variable_costs_what_it_stands_for() {
        let long = "a".repeat(1_000);
        let sum = |name: &str| [name; 10].join(" + ");
        let list = |name: &str, count: usize| vec![name; count].join(", ");
        let sums = format!(
            "cel.bind(a, '{long}', cel.bind(b, {}, cel.bind(c, {}, cel.bind(d, {}, d == ''))))",
            sum("a"),
            sum("b"),
            sum("c")
        );
        for text in [
            sums.clone(),
            sums.replace("bind(a,", "bind((a),"),
            format!(
                "optional.of('{long}').optMap(a, {}).optMap(b, {}).optFlatMap(c, {}) == ''",
                sum("a"),
                sum("b"),
                sum("c")
            ),
            format!(
                "cel.bind(a, ['{long}'], cel.bind(b, [{}], cel.bind(c, [{}], c.size() > 0)))",
                list("a", 100),
                list("b", 100)
            ),
            format!("cel.bind(a, device, cel.bind(b, [{}], b.size() > 0))", list("a", 1_000)),
            "cel.bind(a, 'aaaaaaaa', cel.bind(b, a.replace('', a), cel.bind(c, b.replace('', b), c == '')))".to_owned(),
            format!(
                "cel.bind(l, [{}], cel.bind(k, {}, k.exists(x, k.exists(y, false))))",
                list("1", 30),
                sum("l")
            ),
        ] {
            assert_eq!(steps(&text), Err("the expression could cost too much"), "{text}");
        }

        let gpu = "cel.bind(gpu, device.attributes['gpu.nvidia.com'], ";
        let once = format!("{gpu}gpu.isOne && gpu.isTwo)");
        assert_eq!(steps(&once), Ok(8));
        let before_loops = format!("{gpu}['A', 'H'].exists(m, ['4', '8'].exists(s, gpu.model == m + s + 'GB')))");
        assert_eq!(steps(&before_loops), Ok(1_024 + 8));
        let in_a_loop = format!("['A100', 'H100'].exists(m, {gpu}gpu.model == m))");
        assert_eq!(steps(&in_a_loop), Ok(32 * (1 + 8) + 8));
    }

    #[test]
    fn texts_that_multiply_are_limited() {
        let long = "a".repeat(1_000);
        for text in [
            format!("'a'.replace('a', '{long}').replace('a', '{long}') == ''"),
            format!(
                "['{long}', '{long}'].join('{long}'){}",
                format!(".replace('a', '{long}')").repeat(2)
            ),
            format!(
                "['{long}'].map(x, x{}).map(y, y{})[0] == ''",
                " + x".repeat(50),
                " + y".repeat(50)
            ),
            "'%.999999999f'.format([1.0]) == ''".to_owned(),
            format!(
                "'{}'.replace('a', '{}').split('').all(x, true)",
                "a".repeat(100),
                "b".repeat(100)
            ),
            format!("[1, 2].all(x, '{long}'.replace('a', '{long}') == '')"),
            format!("{}'{long}'{} == ''", "strings.quote('' + ".repeat(15), ")".repeat(15)),
        ] {
            assert_eq!(steps(&text), Err("the expression could cost too much"), "{text}");
        }
        for usual in [
            "device.attributes['gpu.nvidia.com'].productName.lowerAscii().replace(' ', '-').replace('_', '-').replace('/', '-') == 'nvidia-a100-sxm4-80gb'",
            "['a100', 'h100'].exists(m, device.attributes['gpu.nvidia.com'].productName.lowerAscii().replace(' ', '').contains(m))",
            "device.attributes['gpu.nvidia.com'].productName.split(' ').map(x, x.lowerAscii()).join('-') == 'nvidia-a100'",
            "device.driver == '%s.%s'.format(['gpu', 'nvidia.com'])",
            "['A100', 'H100'].map(m, 'NVIDIA ' + m).exists(m, device.attributes['gpu.nvidia.com'].productName == m)",
            "['A100', 'H100'].exists(m, ['40', '80'].exists(s, device.attributes['gpu.nvidia.com'].productName == 'NVIDIA ' + m + '-SXM4-' + s + 'GB'))",
        ] {
            assert!(steps(usual).is_ok(), "{usual}");
        }
    }
}
