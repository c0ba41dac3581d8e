// Runs the public tests for HTTP caches (cache-tests.fyi) against the gateway at a base URL, before the suite's own server
// on a port. Prints the kind and the result of each test that was run, by id.

import process from 'node:process'

const [port, base] = process.argv.slice(2)
Object.assign(process.env, { npm_config_protocol: 'http', npm_config_port: port, npm_config_pidfile: '/dev/null' })
const print = console.log
console.log = () => {}
await import('http-cache-tests/server/server.mjs')
const { default: fetch } = await import('node-fetch')
const { default: suites } = await import('http-cache-tests/tests/index.mjs')
const { getResults, runTests } = await import('http-cache-tests/client/runner.mjs')

await runTests(suites, fetch, false, base)
const results = getResults()
const tests = suites.flatMap((suite) => suite.tests)
print(JSON.stringify(Object.fromEntries(tests.map(({ id, kind = 'required' }) => [id, { kind, result: results[id] ?? null }]))))
process.exit(0)
