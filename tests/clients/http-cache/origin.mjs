// Runs the origin server of the public suite of HTTP cache tests in the folder SUITE, on loopback
// and on a port that the system chooses, and prints its address.
//
// `node origin.mjs SUITE`

import http from 'node:http'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [folder] = process.argv.slice(2)
const handler = async name => {
  const file = path.resolve(folder, 'test-engine/server', `handle-${name}.mjs`)
  return (await import(pathToFileURL(file))).default
}
const handlers = {
  config: await handler('config'),
  state: await handler('state'),
  test: await handler('test'),
}

const server = http.createServer((request, response) => {
  const [, kind, ...rest] = new URL(request.url, 'http://origin').pathname.split('/')
  const handle = handlers[kind]
  if (handle) {
    handle(rest, request, response)
  } else {
    response.writeHead(404).end()
  }
})
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`http://127.0.0.1:${server.address().port}\n`)
  // The suite's own messages have no reader.
  console.log = () => {}
})
