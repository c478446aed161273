// Runs the public suite of HTTP cache tests against the cache at ADDRESS, with a client's key, and
// prints the result of each test as JSON.
//
// `node suite.mjs ADDRESS KEY [TEST]`: TEST selects a single test and also prints its requests and
// answers.

import fetch from 'node-fetch'

import { getResults, runTests } from 'http-cache-tests/client/runner.mjs'
import suites from 'http-cache-tests/tests/index.mjs'

const [address, key, only] = process.argv.slice(2)

// The suite tests `Authorization` itself, so the key travels in the gateway's own header.
const asClient = (url, init = {}) => {
  const headers = Array.isArray(init.headers) ? init.headers : Object.entries(init.headers ?? {})
  return fetch(url, { ...init, headers: [...headers, ['X-Weir-Key', key]] })
}

const chosen = only
  ? suites.map(suite => ({
      ...suite,
      tests: suite.tests.filter(test => test.id === only).map(test => ({ ...test, dump: true })),
    }))
  : suites
await runTests(chosen, asClient, false, address)

const results = getResults()
const told = []
for (const suite of suites) {
  for (const test of suite.tests) {
    const result = results[test.id]
    if (result !== undefined) {
      told.push({
        suite: suite.id,
        test: test.id,
        kind: test.kind ?? 'required',
        passed: result === true,
        why: result === true ? null : result.join(': '),
      })
    }
  }
}
console.log(JSON.stringify(told))
