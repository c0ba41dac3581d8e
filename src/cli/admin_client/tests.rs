use super::*;

fn admin_args(address: &str) -> AdminArgs {
    AdminArgs { admin: Some(address.into()), ..AdminArgs::default() }
}

fn env_vars(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn an_address_is_a_host_and_a_port() {
    for (text, expected) in [
        ("127.0.0.1:9090", "127.0.0.1:9090"),
        ("http://localhost:9090/", "localhost:9090"),
        ("[::1]:9090", "[::1]:9090"),
        ("gate.internal:80", "gate.internal:80"),
        ("unix:/run/tidegate/admin.sock", "unix:/run/tidegate/admin.sock"),
    ] {
        assert_eq!(parse_address(text).as_deref(), Ok(expected), "{text}");
    }
    for text in [
        "",
        "9090",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:99999",
        "https://a:1",
        "a:1/b",
        "u@a:1",
        "unix:a",
    ] {
        let error = parse_address(text).expect_err(text);
        assert!(error.starts_with("--admin: ") && error.contains("; write it like"), "{error}");
    }
}

#[test]
fn wildcard_listener_is_reached_on_loopback() {
    for (listen, expected) in [
        ("0.0.0.0:9090", "127.0.0.1:9090"),
        ("[::]:9090", "[::1]:9090"),
        ("10.0.0.1:9090", "10.0.0.1:9090"),
        ("unix:/a", "unix:/a"),
    ] {
        assert_eq!(connect_address(listen.parse().expect("an address")).to_string(), expected);
    }
}

#[test]
fn token_file_takes_precedence_over_the_environment() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "from-file\n").expect("writable");
    let environment = env_vars(&[(TOKEN_VARIABLE, "from-environment")]);
    let authorization = |args: &AdminArgs, environment: &[(String, String)]| {
        args.token(environment).map(|field| field.map(|field| field.to_str().expect("text").to_owned()))
    };
    let with_file = AdminArgs { token_file: Some(file.clone()), ..admin_args("a:1") };
    assert_eq!(authorization(&with_file, &environment), Ok(Some("Bearer from-file".into())));
    assert_eq!(authorization(&admin_args("a:1"), &environment), Ok(Some("Bearer from-environment".into())));
    assert_eq!(authorization(&admin_args("a:1"), &env_vars(&[(TOKEN_VARIABLE, "")])), Ok(None));
    for text in ["", "\n", "two words", "two\nlines"] {
        std::fs::write(&file, text).expect("writable");
        assert!(
            authorization(&with_file, &environment).is_err_and(|error| error.contains("; write only the token")),
            "{text:?}"
        );
    }
    let missing_file = AdminArgs { token_file: Some("no/such/file".into()), ..admin_args("a:1") };
    assert!(authorization(&missing_file, &environment).is_err_and(|error| error.contains("cannot be read")));
}

#[test]
fn admin_address_is_read_from_an_invalid_config() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("gate.yaml");
    let target_address = |yaml: &str, environment: &[(&str, &str)]| {
        std::fs::write(&file, yaml).expect("writable");
        let args = AdminArgs { file: ConfigArg { config: Some(file.clone()) }, ..AdminArgs::default() };
        args.target(&env_vars(environment)).map(|target| target.client.address().to_owned())
    };
    let incomplete = "origin: { url: '${ELSEWHERE}' }\nquotas: { api: { limit: -1 } }\nadmin: {}";
    assert_eq!(target_address(incomplete, &[]), Ok("127.0.0.1:9090".into()));
    assert_eq!(target_address("origin: {}", &[]), Ok("127.0.0.1:9090".into()));
    assert_eq!(
        target_address("admin: {}", &[("TIDEGATE__ADMIN__LISTEN", "127.0.0.1:9999")]),
        Ok("127.0.0.1:9999".into())
    );
    for (yaml, expected) in [
        (
            "admin: off",
            "admin: found off; remove the line for the default 127.0.0.1:9090 and restart the gateway, or set",
        ),
        (
            "admin: { listen: '127.0.0.1:0' }",
            "port 0 selects a free port at the start; set the actual address with --admin ADDR",
        ),
        ("admin: { token: '${NOBODY}' }", "1:17: admin.token: environment variable NOBODY is not set"),
        ("admin: [", "invalid YAML"),
        ("admin: { listen: somewhere }", "admin.listen: "),
    ] {
        match target_address(yaml, &[]) {
            Err(CommandError::Usage(errors)) => {
                assert!(errors.contains(expected) && errors.contains("--admin ADDR"), "{errors}");
            }
            other => panic!("{yaml}: {other:?}"),
        }
    }
}

#[test]
fn response_status_decides_the_command_result() {
    let result = |status: u16, body: &str| {
        let status = StatusCode::from_u16(status).expect("a status");
        parse_response(AdminResponse { status, body: body.into() }, "a:1", "bring it")
    };
    assert_eq!(result(200, "{\"a\": 1}"), Ok("{\"a\": 1}".into()));
    assert_eq!(
        result(401, "{\"detail\": \"no\"}"),
        Err(CommandError::Usage("a:1: the admin token is missing or wrong; bring it".into()))
    );
    assert_eq!(result(404, "{\"detail\": \"one\\ntwo\"}"), Err(CommandError::Usage("one\ntwo".into())));
    assert!(
        matches!(result(503, "{\"detail\": \"late\"}"), Err(CommandError::Failed(error)) if error.ends_with("503 Service Unavailable: late"))
    );
    for (status, body) in [(200, "<html>"), (404, "<html>"), (500, ""), (429, "{\"type\": \"a\", \"detail\": \"b\"}")] {
        assert!(
            matches!(result(status, body), Err(CommandError::Failed(error)) if error.contains("not an admin API response"))
        );
    }
}

#[test]
fn response_changes_nothing_in_a_terminal() {
    let body = "{\"name\": \"/a\u{9b}2J\u{202e}gpj\u{2028}\",\n\"é\": 1}";
    let response = AdminResponse { status: StatusCode::OK, body: body.into() };
    let printed = parse_response(response, "a:1", "").expect("JSON");
    assert_eq!(printed, "{\"name\": \"/a\\u009b2J\\u202egpj\\u2028\",\n\"é\": 1}");
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(value(&printed), value(body));
}

#[test]
fn token_file_without_end_and_long_url_are_errors_of_the_command_line() {
    let error = read_token_file(Path::new("/dev/zero")).expect_err("it has no end");
    assert!(error.starts_with("--token-file /dev/zero: cannot be read: "), "{error}");
    let path = format!("/api/v1/cache/purge?url={}", "a".repeat(70_000));
    match admin_args("127.0.0.1:1").request(Method::POST, &path, "") {
        Err(CommandError::Usage(message)) => assert!(message.contains("too long"), "{message}"),
        other => panic!("{:?}", other.map_err(|_| "another error")),
    }
}

#[test]
fn request_waits_for_as_long_as_it_says() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    // Nobody accepts the connection.
    let client = AdminClient::new(address).with_timeout(Duration::from_millis(20));
    let error = runtime.block_on(client.request(Method::GET, "/", "")).expect_err("no response");
    assert!(matches!(error, AdminClientError::TimedOut { timeout, .. } if timeout == Duration::from_millis(20)));
}
