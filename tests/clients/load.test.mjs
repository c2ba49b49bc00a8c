// Many clients at once, which never pause: a load generator that people use, against the service before an engine that plays a
// script. How fast that goes is nothing to be tested; that nothing fails and nothing grows is.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import autocannon from 'autocannon';
import {eventually, Server} from './server.mjs';

const megabytes = 1 << 20;
let server;

before(async () => { server = await Server.scripted({answers: [{text: 'It rains, and it will go on raining.'}]}); });
after(async () => assert.equal(await server.stop(), 0, server.log));

// So many requests on 64 connections, however long a busy machine takes for them.
async function load(amount, {path, ...request}) {
  const result = await autocannon({url: server.url + path, connections: 64, amount, timeout: 60, ...request});
  assert.equal(result.errors, 0, 'a connection failed');
  assert.equal(result.timeouts, 0, 'an answer never came');
  assert.equal(result.non2xx, 0, 'a request was refused');
  assert.equal(result.mismatches, 0, 'an answer was wrong');
  assert.equal(result['2xx'], amount, 'a request was not answered');
}

async function growsLittle(request) {
  await load(1000, request);
  const resident = await server.metric('stagecoach_process_resident_memory_bytes');
  await load(3000, request);
  const grown = await server.metric('stagecoach_process_resident_memory_bytes') - resident;
  assert.ok(grown < 16 * megabytes, `the server took ${grown} bytes more`);
  await eventually('all connections are closed', async () => await server.metric('stagecoach_http_connections') <= 2);
  await eventually('no request is left', async () => await server.metric('stagecoach_requests_running') === 0);
}

const json = {method: 'POST', headers: {'content-type': 'application/json'}};
const messages = [{role: 'user', content: 'How is the weather?'}];

test('clients that ask how it is are answered', () => growsLittle({path: '/health', expectBody: '{"status":"ok"}'}));

test('small completions are answered', () =>
  growsLittle({...json, path: '/v1/completions', body: JSON.stringify({prompt: 'Once', max_tokens: 4})}));

test('streams are answered', () =>
  growsLittle({...json, path: '/v1/chat/completions', body: JSON.stringify({messages, stream: true})}));

test('clients that leave in the middle of their streams leave nothing', async () => {
  const client = autocannon({...json, url: server.url + '/v1/chat/completions', connections: 64, duration: 60,
                             body: JSON.stringify({messages, stream: true})});
  setTimeout(() => client.stop(), 500);
  await client;
  await eventually('no stream is left', async () => await server.metric('stagecoach_sse_streams') === 0);
  await eventually('no request is left', async () =>
    await server.metric('stagecoach_requests_running') + await server.metric('stagecoach_requests_waiting') === 0);
  assert.equal((await fetch(server.url + '/health')).status, 200);
});
