// Runs the origin server of the public suite on loopback, on a port that the system chooses, and
// prints its address.

import http from 'node:http'

import handleConfig from 'http-cache-tests/server/handle-config.mjs'
import handleState from 'http-cache-tests/server/handle-state.mjs'
import handleTest from 'http-cache-tests/server/handle-test.mjs'

const handlers = { config: handleConfig, state: handleState, test: handleTest }

const server = http.createServer((request, response) => {
  const [, kind, ...rest] = new URL(request.url, 'http://origin').pathname.split('/')
  const handle = handlers[kind]
  if (handle) {
    handle(rest, request, response)
  } else {
    response.writeHead(404).end()
  }
})
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`))
