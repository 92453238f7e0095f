//! What a reader sees where a secret stood.

use budao_scrub::Scrubber;

/// Parts are joined here so that this file holds nothing that looks like a secret.
fn joined(parts: &[&str]) -> String {
    parts.concat()
}

fn scrubbed(texts: &[String]) -> String {
    let scrubber = Scrubber::with_secrets(["correct horse battery"]);
    texts.iter().map(|text| format!("{}\n", scrubber.scrub(text))).collect()
}

#[test]
fn the_message_stays_useful() {
    let body = "Zm9vYmFyYmF6cXV4MDEyMzQ1Njc4OWFi";
    let texts = [
        joined(&["401 from the model: invalid x-api-", "key: ", body, " (request req_011CSHo)"]),
        joined(&["Incorrect API key provided: sk-", "ant-api03-", body, ". Check your settings."]),
        joined(&[
            "could not connect to postgres",
            "://app:hunter2@10.0.0.7:5432/main: timeout after 3s",
        ]),
        joined(&["redis: dial tcp 192.168.1.20:6379: refused; localhost:6379 refused too"]),
        joined(&["open /home/alice/app/config.toml: permission denied"]),
        joined(&["cannot write C:\\Users\\Alice Liddell\\app\\log.txt"]),
        joined(&[
            "POST https://hooks.slack.com/services/",
            "T0AAAAAA/B0BBBBBB/",
            body,
            " gave 404",
        ]),
        joined(&["Authorization: ", "Bearer ", body, "\nAccept: */*"]),
        joined(&["Cookie: sid=", body, "; theme=dark\nHost: example.com"]),
        joined(&["{\"user\":\"bob\",\"pass", "word\":\"hunter2\",\"retries\":3}"]),
        joined(&["{\"body\":\"{\\\"user\\\":\\\"bob\\\",\\\"pass", "word\\\":\\\"hunter2\\\"}\"}"]),
        joined(&["curl -u admin:hunter2 https://example.com/?access_", "token=", body, "&page=2"]),
        joined(&["数据库密码：hunter2，请检查 10.0.0.7:5432。"]),
        joined(&["the operator typed correct horse battery and left"]),
        joined(&["body was eyJ1c2VyIjoiYm9iIiwicGFzc3dv", "cmQiOiJodW50ZXIyIn0= and was dropped"]),
        joined(&[
            "-----BEGIN RSA PRI",
            "VATE KEY-----\n",
            body,
            "\n",
            body,
            "\n-----END RSA PRI",
            "VATE KEY-----\nwas in the file",
        ]),
    ];
    insta::assert_snapshot!(scrubbed(&texts), @r#"
    401 from the model: invalid x-api-key: [redacted api key] (request req_011CSHo)
    Incorrect API key provided: [redacted api key]. Check your settings.
    could not connect to postgres://[redacted connection]: timeout after 3s
    redis: dial tcp [private address]: refused; [private address] refused too
    open ~/app/config.toml: permission denied
    cannot write ~\app\log.txt
    POST https://hooks.slack.com/services/[redacted webhook] gave 404
    Authorization: Bearer [redacted token]
    Accept: */*
    Cookie: [redacted cookie]
    Host: example.com
    {"user":"bob","password":"[redacted password]","retries":3}
    {"body":"{\"user\":\"bob\",\"password\":\"[redacted password]\"}"}
    curl -u admin:[redacted password] https://example.com/?access_token=[redacted token]&page=2
    数据库密码：[redacted password]，请检查 [private address]。
    the operator typed [redacted secret] and left
    body was [redacted base64] and was dropped
    [redacted private key]
    was in the file
    "#);
}

#[test]
fn a_stack_trace_is_reduced_to_a_count() {
    let texts = [
        "Error: connect ECONNREFUSED\n    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1595:16)\n    at async main (file:///srv/app/index.mjs:4:3)\nretrying".to_owned(),
        "Traceback (most recent call last):\n  File \"/srv/app.py\", line 3, in <module>\n    main()\n  File \"/srv/app.py\", line 2, in main\n    raise KeyError(\"x\")\nKeyError: 'x'".to_owned(),
        "thread 'main' panicked at src/main.rs:2:5:\nboom\nstack backtrace:\n   0: rust_begin_unwind\n             at /rustc/abc/library/std/src/panicking.rs:697:5\n   1: app::main\n             at ./src/main.rs:2:5\nnote: Some details are omitted".to_owned(),
        "panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/main.go:4 +0x1d\n\ngoroutine 7 [select]:\nmain.wait(0xc00001)\n\t/srv/main.go:9 +0x2\nexit status 2".to_owned(),
        "java.io.IOException: closed\n\tat a.B.c(B.java:12)\n\tat a.D.e(D.java:3)\nCaused by: java.net.SocketException: reset\n\tat a.F.g(Native Method)\n\t... 2 more".to_owned(),
        r#"{"stack":"TypeError: x is not a function\n    at f (/srv/a.js:1:2)\n    at g (/srv/b.js:3:4)","code":1}"#.to_owned(),
    ];
    insta::assert_snapshot!(scrubbed(&texts), @r#"
    Error: connect ECONNREFUSED
        [stack trace, 2 lines]
    retrying
    [stack trace, 5 lines]
    KeyError: 'x'
    thread 'main' panicked at src/main.rs:2:5:
    boom
    [stack trace, 5 lines]
    note: Some details are omitted
    panic: boom

    [stack trace, 7 lines]
    exit status 2
    java.io.IOException: closed
    	[stack trace, 2 lines]
    Caused by: java.net.SocketException: reset
    	[stack trace, 2 lines]
    {"stack":"TypeError: x is not a function\n    [stack trace, 2 lines]","code":1}
    "#);
}

#[test]
fn no_secret_in_debug_output() {
    let scrubber = Scrubber::with_secrets(["correct horse battery"]);
    assert_eq!(format!("{scrubber:?}"), "Scrubber { .. }");
    let mut stream = scrubber.stream();
    stream.push("the operator typed correct horse battery");
    assert!(!format!("{stream:?}").contains("horse"), "{stream:?}");
}

/// Every spelling a configured secret commonly takes.
#[test]
fn a_configured_secret_is_found_in_every_spelling() {
    let secret = "pä\"ss/w+rd 9\\x&=";
    let scrubber = Scrubber::with_secrets([secret]);
    let spellings = [
        secret.to_owned(),
        "p%C3%A4%22ss%2Fw%2Brd%209%5Cx%26%3D".to_owned(),
        "p%c3%a4%22ss%2fw%2brd%209%5cx%26%3d".to_owned(),
        "p%C3%A4%22ss%2Fw%2Brd+9%5Cx%26%3D".to_owned(),
        serde_json::json!({ "a": secret }).to_string(),
        serde_json::json!({ "b": serde_json::json!({ "a": secret }).to_string() }).to_string(),
        format!("{secret:?}"),
        "p\\u00e4\\\"ss/w+rd 9\\\\x&=".to_owned(),
        "p\u{e4}\\\"ss\\/w+rd 9\\\\x&=".to_owned(),
    ];
    for text in spellings {
        let out = scrubber.scrub_exact(&format!("sent {text} to them")).into_owned();
        assert!(out.contains("[redacted secret]"), "{text}: {out}");
        assert!(!out.contains("rd"), "{text}: {out}");
    }
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    for before in ["", "a", "ab", "abc", "user:"] {
        let whole = format!("{before}{secret}, and so on");
        for encoded in [STANDARD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
            let out = scrubber.scrub_exact(&encoded).into_owned();
            assert!(out.contains("[redacted secret]"), "{before:?}: {encoded}: {out}");
        }
    }
}

#[test]
fn a_short_secret_is_ignored_and_blanks_around_one_do_not_count() {
    let scrubber = Scrubber::with_secrets(["abc", "  sixsix\n"]);
    assert_eq!(scrubber.scrub_exact("abc sixsix abc"), "abc [redacted secret] abc");
    assert_eq!(Scrubber::with_secrets(["", "12345"]).scrub_exact("12345"), "12345");
}
