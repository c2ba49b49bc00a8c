// Anthropic's Messages with their own client, against a scripted model.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import {Server} from './server.mjs';
import {eventsOf, messageOf, post, script, thought, weather, written} from './shapes.mjs';

const tools = [{name: weather.name, description: weather.description, input_schema: weather.schema}];
const two = thought('Two of them.') + 'I look.\n' + written(weather.name, {city: 'Paris'}) + '\n' + written(weather.name, {city: 'Rome'});
const answers = [
  {when: 'It rains there.', text: 'Take an umbrella.'},
  {when: 'both cities', text: two, each_ms: 1},
  {when: 'one city', text: written(weather.name, {city: 'Paris'})},
  {when: 'for long', text: 'word '.repeat(400), each_ms: 20},
  {when: 'add up', text: thought('It is simple.') + 'Four.', each_ms: 1},
  {when: 'Count.', text: 'One, two, three, four.', each_ms: 1},
  {text: 'It is what it is.'},
];
const ask = (content, more = {}) => ({model: 'm', max_tokens: 1000, messages: [{role: 'user', content}], ...more});
let server, client;

before(async () => {
  server = await Server.scripted(script(answers));
  client = new Anthropic({baseURL: server.url, apiKey: 'none', maxRetries: 0});
});
after(async () => assert.equal(await server.stop(), 0, server.log));

const kinds = message => message.content.map(block => block.type);
// What does not change from one answer to the next.
const lasting = ({content, stop_reason, stop_sequence, usage}) =>
  ({content: content.map(({id, ...block}) => block), stop_reason, stop_sequence, usage});

test('a message is whole', async () => {
  const message = await client.messages.create(ask('How are you?', {system: 'Be brief.'}));
  assert.equal(message.type, 'message');
  assert.match(message.id, /^msg_/);
  assert.equal(message.role, 'assistant');
  assert.deepEqual(message.content, [{type: 'text', text: 'It is what it is.', citations: null}]);
  assert.equal(message.stop_reason, 'end_turn');
  assert.equal(message.stop_sequence, null);
  assert.ok(message.usage.input_tokens > 0 && message.usage.output_tokens > 0);
  assert.equal(message.usage.cache_read_input_tokens, 0);
  assert.ok(message._request_id);
});

test('a stream tells what the whole message has, and so does its helper', async () => {
  for (const request of [ask('How are you?'), ask('Please add up.'), ask('How is it in both cities?', {tools}), ask('How are you?', {max_tokens: 2})]) {
    const whole = await client.messages.create(request);
    const final = await client.messages.stream(request).finalMessage();
    assert.deepEqual(lasting(final), lasting(whole));
    assert.deepEqual(lasting(messageOf(await eventsOf(await post(server, '/v1/messages', {...request, stream: true})))), lasting(whole));
    let types = [];
    for await (const event of await client.messages.create({...request, stream: true})) types.push(event.type);
    assert.equal(types[0], 'message_start');
    assert.equal(types.at(-1), 'message_stop');
  }
});

test('thinking is a block of its own, and goes back as it came', async () => {
  const request = ask('Please add up.', {thinking: {type: 'enabled', budget_tokens: 1024}, max_tokens: 2000});
  const message = await client.messages.create(request);
  assert.deepEqual(message.content[0], {type: 'thinking', thinking: 'It is simple.', signature: ''});
  assert.equal(message.content[1].text, 'Four.');
  const messages = [...request.messages, {role: 'assistant', content: message.content}, {role: 'user', content: 'How are you?'}];
  assert.equal((await client.messages.create({...request, messages})).stop_reason, 'end_turn');
  const thoughts = [];
  await client.messages.stream(request).on('thinking', delta => thoughts.push(delta)).finalMessage();
  assert.equal(thoughts.join(''), 'It is simple.');
});

test('the model uses a tool, and goes on with what it gave', async () => {
  const request = ask('How is it in one city?', {tools});
  const first = await client.messages.create(request);
  assert.equal(first.stop_reason, 'tool_use');
  assert.deepEqual(kinds(first), ['tool_use']);
  const [use] = first.content;
  assert.match(use.id, /^toolu_/);
  assert.equal(use.name, weather.name);
  assert.deepEqual(use.input, {city: 'Paris'});
  const result = {type: 'tool_result', tool_use_id: use.id, content: [{type: 'text', text: 'It rains there.'}]};
  const messages = [...request.messages, {role: 'assistant', content: first.content}, {role: 'user', content: [result]}];
  const second = await client.messages.create({...request, messages});
  assert.equal(second.content[0].text, 'Take an umbrella.');
  assert.equal(second.stop_reason, 'end_turn');
});

test('two uses are streamed one after the other, and only one where only one is wanted', async () => {
  const request = ask('How is it in both cities?', {tools});
  const inputs = [];
  const stream = client.messages.stream(request).on('contentBlock', block => { if (block.type === 'tool_use') inputs.push(block.input); });
  const message = await stream.finalMessage();
  assert.deepEqual(kinds(message), ['thinking', 'text', 'tool_use', 'tool_use']);
  assert.deepEqual(inputs, [{city: 'Paris'}, {city: 'Rome'}]);
  assert.equal(message.stop_reason, 'tool_use');
  const one = await client.messages.create({...request, tool_choice: {type: 'auto', disable_parallel_tool_use: true}});
  assert.deepEqual(kinds(one), ['thinking', 'text', 'tool_use']);
  const none = await client.messages.create({...request, tool_choice: {type: 'none'}});
  assert.deepEqual(kinds(none), ['thinking', 'text']);
});

test('the helper that runs tools comes to the end', async () => {
  const asked = [];
  const runner = client.beta.messages.toolRunner({
    ...ask('How is it in one city?'),
    tools: [{...tools[0], type: 'custom', run: input => { asked.push(input); return 'It rains there.'; }, parse: input => input}],
  });
  const final = await runner;
  assert.deepEqual(asked, [{city: 'Paris'}]);
  assert.equal(final.content[0].text, 'Take an umbrella.');
});

test('a stop sequence ends the message and is named', async () => {
  const request = ask('Count.', {stop_sequences: [', three', 'never']});
  for (const message of [await client.messages.create(request), await client.messages.stream(request).finalMessage()]) {
    assert.equal(message.content[0].text, 'One, two');
    assert.equal(message.stop_reason, 'stop_sequence');
    assert.equal(message.stop_sequence, ', three');
  }
  assert.equal((await client.messages.create(ask('Count.', {max_tokens: 2}))).stop_reason, 'max_tokens');
});

test('system messages may stand anywhere', async () => {
  const messages = [{role: 'user', content: 'Hm.'}, {role: 'assistant', content: 'Yes?'}, {role: 'user', content: 'Go on.'},
                    {role: 'system', content: [{type: 'text', text: 'Count.'}]}];
  const message = await client.messages.create({...ask(''), messages, system: [{type: 'text', text: 'Be brief.'}]});
  assert.equal(message.content[0].text, 'One, two, three, four.');
});

test('counted tokens are those of the call', async () => {
  const {max_tokens, ...request} = ask('How is it in one city?', {tools, system: 'Be brief.'});
  const {input_tokens} = await client.messages.countTokens(request);
  assert.equal(input_tokens, (await client.messages.create({...request, max_tokens})).usage.input_tokens);
  const beta = await client.beta.messages.countTokens(request);  // with ?beta=true
  assert.equal(beta.input_tokens, input_tokens);
});

test('errors have the form that the client reads', async () => {
  await assert.rejects(client.messages.create({...ask('a'), max_tokens: 0}), error => {
    assert.ok(error instanceof Anthropic.BadRequestError, String(error));
    assert.equal(error.error.type, 'error');
    assert.equal(error.error.error.type, 'invalid_request_error');
    assert.match(error.error.error.message, /max_tokens/);
    assert.ok(error.requestID);
    assert.equal(error.error.request_id, error.requestID);
    return true;
  });
  await assert.rejects(client.messages.create(ask('word '.repeat(80000))), /prompt is too long: \d+ tokens > \d+ maximum/);
  const {data} = await client.models.list();
  assert.equal(data.length, 1);
  assert.equal(data[0].type, 'model');
  // Who gives this client a base URL with /v1 is told so.
  const lost = new Anthropic({baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 0});
  await assert.rejects(lost.messages.create(ask('a')), error => error.status === 404 && /use the URL without it/.test(error.message));
});

test('an error in the middle of a stream is thrown', async () => {
  const short = await Server.scripted(script(answers, {drain_timeout_ms: 100}));
  const stream = new Anthropic({baseURL: short.url, apiKey: 'none', maxRetries: 0}).messages.stream(ask('Talk for long.'));
  let deltas = 0;
  stream.on('text', () => { if (++deltas === 2) short.process.kill('SIGTERM'); });
  await assert.rejects(stream.finalMessage(), error => {
    assert.ok(error instanceof Anthropic.APIError, String(error));
    assert.equal(error.error.type, 'error');
    assert.equal(error.error.error.type, 'overloaded_error');
    return true;
  });
  assert.ok(deltas >= 2);
  assert.equal(await short.exited, 0);
});
