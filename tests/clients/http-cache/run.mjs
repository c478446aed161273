// Runs the public suite of HTTP cache tests in the folder SUITE against the cache at ADDRESS, with
// a client's key, and prints the result of each test as JSON.
//
// `node run.mjs SUITE ADDRESS ORIGIN KEY CREDENTIAL [TEST]`: CREDENTIAL is the client's own
// upstream credential, `-` for none; a test that sends another one keeps it. TEST selects a single
// test and also prints its requests and answers.

import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [folder, address, origin, key, credential, only] = process.argv.slice(2)
const load = file => import(pathToFileURL(path.resolve(folder, file)))
const { getResults, runTests } = await load('test-engine/client/runner.mjs')
const { determineTestResult } = await load('test-engine/lib/results.mjs')
const suites = (await load('tests/index.mjs')).default

// The suite tests `Authorization` itself, so the key travels in the gateway's own header. Requests
// about the tests go to the origin: they are no traffic of the cache.
const { fetch } = globalThis
globalThis.fetch = (url, init = {}) => {
  const to = new URL(url)
  if (!to.pathname.startsWith('/test/')) return fetch(origin + to.pathname + to.search, init)
  const headers = Array.isArray(init.headers) ? init.headers : Object.entries(init.headers ?? {})
  const own = headers.some(([name]) => name.toLowerCase() === 'authorization')
  const added = [['X-Weir-Key', key]]
  if (credential !== '-' && !own) added.push(['Authorization', credential])
  return fetch(url, { ...init, headers: [...headers, ...added] })
}

const chosen = suites.map(suite => ({
  ...suite,
  tests: suite.tests
    .filter(test => !test.browser_only && (!only || test.id === only))
    .map(test => (only ? { ...test, dump: true } : test)),
}))
await runTests(chosen, false, address)

const WORDS = { '✅': 'pass', Y: 'pass', '⛔️': 'fail', '⚠️': 'fail', N: 'fail', '🔹': 'setup', '⚪️': 'depends', '↻': 'retried' }
const results = getResults()
const told = chosen.flatMap(suite =>
  suite.tests.map(test => {
    const [, , symbol] = determineTestResult(suites, test.id, results)
    const why = Array.isArray(results[test.id]) ? results[test.id].join(': ') : null
    return { suite: suite.id, test: test.id, kind: test.kind ?? 'required', result: WORDS[symbol] ?? symbol, why }
  })
)
console.log(JSON.stringify(told))
process.exit(0)
