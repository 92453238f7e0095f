//! Connection strings and hosts: what is replaced, and what a reader still needs.

use budao_scrub::Scrubber;

/// Every line is a text and what becomes of it; the password `Hunter2Hunter2` is configured, all others are not.
fn check(cases: &[(&str, &str)]) {
    let scrubber = Scrubber::with_secrets(["Hunter2Hunter2"]);
    for (text, expected) in cases {
        assert_eq!(scrubber.scrub(text), *expected, "of {text}");
        assert_eq!(scrubber.scrub(expected), *expected, "settled");
        let mut stream = scrubber.stream();
        let mut out = String::new();
        for char in text.chars() {
            out.push_str(&stream.push(char.encode_utf8(&mut [0; 4])));
        }
        assert_eq!(out + &stream.finish(), *expected, "in characters");
    }
}

#[test]
fn a_url_of_a_database_keeps_its_scheme_alone() {
    check(&[
        (
            "postgres://app:s3cr3t@db-1:5432/main refused",
            "postgres://[redacted connection] refused",
        ),
        ("(mysql://app@db-1/main)", "(mysql://[redacted connection])"),
        (
            "at mongodb+srv://a:b1@c.example.net/x?w=1, retried",
            "at mongodb+srv://[redacted connection], retried",
        ),
        ("postgres://app:Hunter2Hunter2@db-1/main", "postgres://[redacted connection]"),
        ("postgres://app:***@db-1/main", "postgres://[redacted connection]"),
        ("redis://[fd00::7]:6379/0", "redis://[redacted connection]"),
        ("jdbc:oracle:thin:scott/tiger@db-1:1521:orcl", "jdbc:oracle:thin:[redacted connection]"),
        ("连接 mysql://app:x1y2z3@db-1/main，失败", "连接 mysql://[redacted connection]，失败"),
    ]);
}

#[test]
fn both_forms_without_a_scheme_are_replaced() {
    check(&[
        ("dsn app:s3cr3t@tcp(db-1:3306)/main?parseTime=true", "dsn [redacted connection]"),
        ("DSN=app:Hunter2Hunter2@tcp(db-1:3306)/main", "DSN=[redacted connection]"),
        ("(host=db-1 port=5432 user=app password=x1 dbname=main)", "([redacted connection])"),
        ("host=db-1 user=app password=Hunter2Hunter2 dbname=main", "[redacted connection]"),
        ("Server=db-1;Database=main;Uid=app;Pwd=x1y2z3; failed", "[redacted connection]; failed"),
        ("host=db-1 port=5432 attempt=2", "host=[private address] attempt=2"),
    ]);
}

#[test]
fn a_host_is_replaced_where_a_message_speaks_of_a_connection() {
    check(&[
        ("dial tcp db.example.com:5432: refused", "dial tcp [private address]: refused"),
        ("dial tcp queue:9999: refused", "dial tcp [private address]: refused"),
        ("could not connect to build-7:8080", "could not connect to [private address]"),
        (
            "http://billing.prod.svc.cluster.local/v1 gave 502",
            "http://[private address]/v1 gave 502",
        ),
        (
            "ssh: connect to host build-7 port 22: refused",
            "ssh: connect to host [private address] port 22: refused",
        ),
        ("无法连接到 db-1:3306。", "无法连接到 [private address]。"),
    ]);
}

#[test]
fn a_public_service_keeps_its_name() {
    let texts = [
        "dial tcp api.anthropic.com:443: i/o timeout",
        "could not connect to api.openai.com",
        "POST https://api.example.com:8443/v1/messages gave 529",
        "lookup api.openai.com: no such host",
        "postgres://user:password@host/database",
        "host=%s port=%d user=%s dbname=%s",
        "connect(host=host, user=user, password=password)",
        "docker run -p 5432:5432 postgres:16",
        "src/db.rs:5432: warning",
    ];
    check(&texts.map(|text| (text, text)));
}

#[test]
fn a_secret_key_of_aws_needs_no_name() {
    let key = ["wJalrXUtnFEMI", "/K7MDENG/bPxRfi", "CYEXAMPLEKEY"].concat();
    let id = ["AKIA", "IOSFODNN7EXAMPLE"].concat();
    check(&[
        (&format!("the key {key} is wrong"), "the key [redacted secret] is wrong"),
        (&format!("{id} {key}"), "[redacted api key] [redacted secret]"),
    ]);
    let hash = "9fceb02d0ae598e95dc970b74767f19372d61af8";
    let texts = [hash.to_owned(), format!("{id:.4} and {hash}"), format!("a/{key}/b")];
    check(&texts.each_ref().map(|text| (text.as_str(), text.as_str())));
}

#[test]
fn a_password_is_found_by_its_short_names() {
    check(&[
        ("pw: hunter2", "pw: [redacted password]"),
        ("pw=hunter2", "pw=[redacted password]"),
        ("db_pw=hunter2", "db_pw=[redacted password]"),
        ("passwd hunter2 was refused", "passwd [redacted password] was refused"),
        ("password hu!nter2", "password [redacted password]"),
        ("密码=hunter2", "密码=[redacted password]"),
        ("密码 Xk9dT2w", "密码 [redacted password]"),
        ("pw: see wiki", "pw: see wiki"),
        ("passwd file", "passwd file"),
        ("passwd sha512", "passwd sha512"),
        ("password RFC2898", "password RFC2898"),
        ("密码错误", "密码错误"),
    ]);
}
