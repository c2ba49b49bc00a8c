// OpenAI's Responses with their own client, against a scripted model. Its stream helper throws on a missing index, so what it gives is
// well-formed; beside it stands every event's own check.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import OpenAI from 'openai';
import {Server} from './server.mjs';
import {eventsOf, post, responseOf, script, thought, weather, written} from './shapes.mjs';

const tools = [{type: 'function', name: weather.name, description: weather.description, parameters: weather.schema, strict: false}];
const two = thought('Two of them.') + 'I look.\n' + written(weather.name, {city: 'Paris'}) + '\n' + written(weather.name, {city: 'Rome'});
const answers = [
  {when: 'It rains there.', text: 'Take an umbrella.'},
  {when: 'both cities', text: two, each_ms: 1},
  {when: 'one city', text: written(weather.name, {city: 'Paris'})},
  {when: 'the disk', text: written('shell', {input: 'df -h\nuname'}), each_ms: 1},
  {when: 'a helper', text: written('agents__send_input', {to: 'all'})},
  {when: 'for long', text: 'word '.repeat(400), each_ms: 20},
  {when: 'add up', text: thought('It is simple.') + 'Four.', each_ms: 1},
  {text: 'It is what it is.'},
];
let server, client;

before(async () => {
  server = await Server.scripted(script(answers));
  client = new OpenAI({baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 0});
});
after(async () => assert.equal(await server.stop(), 0, server.log));

const kinds = response => response.output.map(item => item.type);
// What does not change from one answer to the next.
const lasting = ({output}) => output.map(({id, call_id, ...item}) => item);
const streamed = async request => responseOf(await eventsOf(await post(server, '/v1/responses', {...request, stream: true})));

test('an answer is whole', async () => {
  const response = await client.responses.create({model: 'm', instructions: 'Be brief.', input: 'How are you?'});
  assert.equal(response.object, 'response');
  assert.match(response.id, /^resp_/);
  assert.equal(response.status, 'completed');
  assert.equal(response.output_text, 'It is what it is.');
  assert.deepEqual(kinds(response), ['message']);
  assert.match(response.output[0].id, /^msg_/);
  assert.equal(response.instructions, 'Be brief.');
  assert.equal(response.store, false);
  assert.equal(response.error, null);
  assert.equal(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens);
  assert.equal(response.usage.input_tokens_details.cached_tokens, 0);
  assert.ok(response._request_id);
});

test('a stream tells what the whole answer has, and so does its helper', async () => {
  for (const content of ['How are you?', 'Please add up.']) {
    const request = {model: 'm', input: [{role: 'user', content}]};
    const whole = await client.responses.create(request);
    assert.deepEqual(lasting(await streamed(request)), lasting(whole));
    let text = '';
    const stream = client.responses.stream(request);
    stream.on('response.output_text.delta', event => {
      text += event.delta;
      assert.equal(event.snapshot, text);
    });
    const final = await stream.finalResponse();
    assert.equal(text, whole.output_text);
    assert.equal(final.output_text, whole.output_text);
    assert.deepEqual(kinds(final), kinds(whole));
    assert.deepEqual(final.usage, whole.usage);
  }
});

test('reasoning is an item of its own', async () => {
  const response = await client.responses.create({model: 'm', input: 'Please add up.', reasoning: {effort: 'low'}});
  assert.deepEqual(kinds(response), ['reasoning', 'message']);
  assert.match(response.output[0].id, /^rs_/);
  assert.deepEqual(response.output[0].content, [{type: 'reasoning_text', text: 'It is simple.'}]);
  assert.equal(response.output_text, 'Four.');
  assert.ok(response.usage.output_tokens_details.reasoning_tokens > 0);
});

test('the model calls a tool, and goes on with what it gave', async () => {
  const input = [{role: 'user', content: 'How is it in one city?'}];
  const first = await client.responses.create({model: 'm', input, tools});
  assert.deepEqual(kinds(first), ['function_call']);
  const [call] = first.output;
  assert.match(call.id, /^fc_/);
  assert.match(call.call_id, /^call_/);
  assert.equal(call.name, weather.name);
  assert.equal(call.status, 'completed');
  assert.deepEqual(JSON.parse(call.arguments), {city: 'Paris'});
  input.push(...first.output, {type: 'function_call_output', call_id: call.call_id, output: 'It rains there.'});
  assert.equal((await client.responses.create({model: 'm', input, tools})).output_text, 'Take an umbrella.');
});

test('reasoning, text and two calls are streamed in their order', async () => {
  const request = {model: 'm', input: 'How is it in both cities?', tools};
  const whole = await client.responses.create(request);
  assert.deepEqual(kinds(whole), ['reasoning', 'message', 'function_call', 'function_call']);
  assert.deepEqual(lasting(await streamed(request)), lasting(whole));
  const snapshots = [];
  const stream = client.responses.stream(request);
  stream.on('response.function_call_arguments.delta', event => { snapshots[event.output_index] = event.snapshot; });
  const final = await stream.finalResponse();
  assert.deepEqual(final.output.slice(2).map(item => JSON.parse(item.arguments).city), ['Paris', 'Rome']);
  assert.deepEqual(snapshots.slice(2), final.output.slice(2).map(item => item.arguments));
  const one = await client.responses.create({...request, parallel_tool_calls: false});
  assert.deepEqual(kinds(one), ['reasoning', 'message', 'function_call']);
});

test('custom tools take a text', async () => {
  const request = {model: 'm', input: 'How full is the disk?', tools: [{type: 'custom', name: 'shell', description: 'Runs a command.'}]};
  const whole = await client.responses.create(request);
  assert.deepEqual(kinds(whole), ['custom_tool_call']);
  assert.match(whole.output[0].id, /^ctc_/);
  assert.equal(whole.output[0].name, 'shell');
  assert.equal(whole.output[0].input, 'df -h\nuname');
  assert.deepEqual(lasting(await streamed(request)), lasting(whole));
  assert.equal((await client.responses.stream(request).finalResponse()).output[0].input, 'df -h\nuname');
  const input = [{role: 'user', content: request.input}, ...whole.output,
                 {type: 'custom_tool_call_output', call_id: whole.output[0].call_id, output: 'It rains there.'}];
  assert.equal((await client.responses.create({...request, input})).output_text, 'Take an umbrella.');
});

test('members of a namespace keep their own names', async () => {
  const members = [{type: 'function', name: 'send_input', parameters: {type: 'object', properties: {to: {type: 'string'}}}}];
  const request = {model: 'm', input: 'Ask a helper.', tools: [...tools, {type: 'namespace', name: 'agents', description: 'Helpers.', tools: members}]};
  const whole = await client.responses.create(request);
  assert.deepEqual(kinds(whole), ['function_call']);
  assert.equal(whole.output[0].name, 'send_input');
  assert.equal(whole.output[0].namespace, 'agents');
  assert.deepEqual(lasting(await streamed(request)), lasting(whole));
  const input = [{role: 'user', content: request.input}, ...whole.output,
                 {type: 'function_call_output', call_id: whole.output[0].call_id, output: 'It rains there.'}];
  assert.equal((await client.responses.create({...request, input})).output_text, 'Take an umbrella.');
});

test('an answer that is cut is incomplete', async () => {
  const request = {model: 'm', input: 'How are you?', max_output_tokens: 2};
  const whole = await client.responses.create(request);
  assert.equal(whole.status, 'incomplete');
  assert.deepEqual(whole.incomplete_details, {reason: 'max_output_tokens'});
  assert.equal(whole.usage.output_tokens, 2);
  const told = await streamed(request);
  assert.equal(told.status, 'incomplete');
  assert.deepEqual(lasting(told), lasting(whole));
  assert.equal((await client.responses.stream(request).finalResponse()).status, 'incomplete');
});

test('input tokens are those of the call', async () => {
  const request = {model: 'm', instructions: 'Be brief.', input: [{role: 'user', content: 'How is it in one city?'}], tools};
  const counted = await client.responses.inputTokens.count(request);
  assert.equal(counted.object, 'response.input_tokens');
  assert.equal(counted.input_tokens, (await client.responses.create(request)).usage.input_tokens);
});

test('what a stateless server cannot do is refused by name', async () => {
  for (const [field, value] of Object.entries({previous_response_id: 'resp_1', background: true, conversation: 'conv_1'})) {
    await assert.rejects(client.responses.create({model: 'm', input: 'a', [field]: value}), error => {
      assert.ok(error instanceof OpenAI.BadRequestError, String(error));
      assert.equal(error.param, field);
      assert.equal(error.code, 'unsupported_parameter');
      return true;
    });
  }
  await assert.rejects(client.responses.retrieve('resp_1'), error => error instanceof OpenAI.NotFoundError);
});

test('an answer that cannot go on has failed', async () => {
  const short = await Server.scripted(script(answers, {drain_timeout_ms: 100}));
  const events = [];
  let killed = false;
  for await (const event of await new OpenAI({baseURL: short.url + '/v1', apiKey: 'none', maxRetries: 0}).responses.create(
      {model: 'm', input: 'Talk for long.', stream: true})) {
    events.push({event: event.type, data: event});
    if (event.type === 'response.output_text.delta' && !killed) killed = short.process.kill('SIGTERM');
  }
  const last = events.at(-1).data;
  assert.equal(last.type, 'response.failed');
  assert.equal(last.response.status, 'failed');
  assert.equal(last.response.error.code, 'draining');
  assert.match(last.response.error.message, /ends/);
  assert.equal(await short.exited, 0);
});
