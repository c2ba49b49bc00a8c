// Tools of chat completions with OpenAI's own client, against a scripted model: exact calls, whole and streamed.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import OpenAI from 'openai';
import {eventually, Server} from './server.mjs';
import {chatOf, eventsOf, post, script, thought, weather, written} from './shapes.mjs';

const tools = [
  {type: 'function', function: {name: weather.name, description: weather.description, parameters: weather.schema}},
  {type: 'function', function: {name: 'write_file'}},
];
const poem = 'Whan that Aprille with his shoures soote "the droghte" of March hath perced to the roote\n'.repeat(12);
const two = thought('Two of them.') + 'I look.\n' + written(weather.name, {city: 'Paris'}) + '\n' + written(weather.name, {city: 'Rome'});
const answers = [
  {when: 'It rains there.', text: 'Take an umbrella.'},
  {when: 'both cities', text: two, each_ms: 1},
  // Its end is far away.
  {when: 'every city', text: 'I look.\n' + written(weather.name, {city: 'Paris'}) + '\n' + 'and '.repeat(4000), each_ms: 25},
  {when: 'one city', text: written(weather.name, {city: 'Paris'})},
  {when: 'a poem', text: written('write_file', {path: 'poem.txt', text: poem}), each_ms: 1},
  {when: 'the disk', text: written('shell', {input: 'df -h\nuname'}), each_ms: 1},
  {when: 'nonsense', text: '<tool_call>\n{"name": get_weather\n</tool_call>'},
  {text: 'It is what it is.'},
];
const ask = content => ({model: 'm', messages: [{role: 'user', content}], tools});
let server, client;

before(async () => {
  server = await Server.scripted(script(answers));
  client = new OpenAI({baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 0});
});
after(async () => assert.equal(await server.stop(), 0, server.log));

test('the model calls a tool, and goes on with what it gave', async () => {
  const request = ask('How is it in one city?');
  const answer = await client.chat.completions.create(request);
  const [{message, finish_reason}] = answer.choices;
  assert.equal(finish_reason, 'tool_calls');
  assert.equal(message.content, null);
  assert.equal(message.tool_calls.length, 1);
  const [call] = message.tool_calls;
  assert.match(call.id, /^call_[A-Za-z0-9]{24}$/);
  assert.equal(call.type, 'function');
  assert.equal(call.function.name, weather.name);
  assert.deepEqual(JSON.parse(call.function.arguments), {city: 'Paris'});
  const messages = [...request.messages, message, {role: 'tool', tool_call_id: call.id, content: 'It rains there.'}];
  const second = await client.chat.completions.create({...request, messages});
  assert.equal(second.choices[0].finish_reason, 'stop');
  assert.equal(second.choices[0].message.content, 'Take an umbrella.');
  assert.equal(second.choices[0].message.tool_calls, undefined);
});

test('the helper that runs tools comes to the end', async () => {
  const asked = [];
  const runner = client.chat.completions.runTools({
    model: 'm', messages: [{role: 'user', content: 'How is it in one city?'}],
    tools: [{type: 'function', function: {
      name: weather.name, parameters: weather.schema, parse: JSON.parse,
      function: args => { asked.push(args); return 'It rains there.'; },
    }}],
  });
  assert.equal(await runner.finalContent(), 'Take an umbrella.');
  assert.deepEqual(asked, [{city: 'Paris'}]);
});

test('two calls are streamed one after the other', async () => {
  const whole = (await client.chat.completions.create(ask('How is it in both cities?'))).choices[0];
  assert.equal(whole.message.content, 'I look.');
  assert.equal(whole.message.reasoning_content, 'Two of them.');
  assert.deepEqual(whole.message.tool_calls.map(call => JSON.parse(call.function.arguments).city), ['Paris', 'Rome']);

  const done = [];
  const stream = client.chat.completions.stream(ask('How is it in both cities?'));
  stream.on('tool_calls.function.arguments.done', event => done.push(event));
  const final = (await stream.finalChatCompletion()).choices[0];
  assert.equal(final.finish_reason, 'tool_calls');
  assert.equal(final.message.content, whole.message.content);
  assert.deepEqual(final.message.tool_calls.map(call => call.function.name), [weather.name, weather.name]);
  assert.deepEqual(final.message.tool_calls.map(call => call.function.arguments),
                   whole.message.tool_calls.map(call => call.function.arguments));
  assert.notEqual(final.message.tool_calls[0].id, final.message.tool_calls[1].id);
  assert.deepEqual(done.map(event => event.index), [0, 1]);

  const raw = chatOf(await eventsOf(await post(server, '/v1/chat/completions', {...ask('How is it in both cities?'), stream: true})));
  assert.equal(raw.finish, 'tool_calls');
  assert.equal(raw.message.reasoning, 'Two of them.');
  assert.equal(raw.message.content, 'I look.');
  assert.equal(raw.message.calls.length, 2);
});

test('long arguments come while the model writes them', async () => {
  const stream = client.chat.completions.stream(ask('Write a poem.'));
  let pieces = 0, first = null;
  stream.on('tool_calls.function.arguments.delta', event => {
    if (event.arguments_delta !== '') ++pieces;
    first ??= event.arguments;
  });
  const [call] = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
  assert.deepEqual(JSON.parse(call.function.arguments), {path: 'poem.txt', text: poem});
  assert.ok(pieces > 10, `${pieces} pieces`);
  assert.ok(first.length < call.function.arguments.length / 2, 'the first piece is not all of it');
});

test('parallel_tool_calls false ends the answer after its first call', async () => {
  const request = {...ask('How is it in every city?'), parallel_tool_calls: false};
  const [whole] = (await client.chat.completions.create(request)).choices;
  assert.equal(whole.finish_reason, 'tool_calls');
  assert.equal(whole.message.content, 'I look.');
  assert.deepEqual(whole.message.tool_calls.map(call => JSON.parse(call.function.arguments)), [{city: 'Paris'}]);
  const [streamed] = (await client.chat.completions.stream(request).finalChatCompletion()).choices;
  assert.equal(streamed.finish_reason, 'tool_calls');
  assert.equal(streamed.message.tool_calls.length, 1);
  await eventually('the engine is told', async () => await server.metric('stagecoach_requests_running') === 0);
});

test('tools that are not to be called are not offered, and the text of a call is text', async () => {
  for (const change of [{tool_choice: 'none'}, {tools: undefined}, {tools: []}]) {
    const [choice] = (await client.chat.completions.create({...ask('How is it in one city?'), ...change})).choices;
    assert.equal(choice.finish_reason, 'stop');
    assert.equal(choice.message.content, written(weather.name, {city: 'Paris'}));
  }
  const count = async change => (await client.chat.completions.create({...ask('Hm.'), ...change})).usage.prompt_tokens;
  assert.equal(await count({tool_choice: 'none'}), await count({tools: undefined}));
  const allowed = {type: 'allowed_tools', allowed_tools: {mode: 'auto', tools: [{type: 'function', function: {name: weather.name}}]}};
  assert.equal(await count({tool_choice: allowed}), await count({tools: tools.slice(0, 1)}));
});

test('a call that cannot be read is not lost', async () => {
  const [choice] = (await client.chat.completions.create(ask('Say nonsense.'))).choices;
  assert.equal(choice.finish_reason, 'stop');
  assert.equal(choice.message.content, '<tool_call>\n{"name": get_weather\n</tool_call>');
});

test('custom tools take a text', async () => {
  const request = {...ask('How full is the disk?'), tools: [{type: 'custom', custom: {name: 'shell', description: 'Runs a command.'}}]};
  const [{message, finish_reason}] = (await client.chat.completions.create(request)).choices;
  assert.equal(finish_reason, 'tool_calls');
  const [call] = message.tool_calls;
  assert.equal(call.type, 'custom');
  assert.deepEqual(call.custom, {name: 'shell', input: 'df -h\nuname'});
  const {message: streamed} = chatOf(await eventsOf(await post(server, '/v1/chat/completions', {...request, stream: true})));
  assert.equal(streamed.calls.length, 1);
  assert.equal(streamed.calls[0].type, 'custom');
  assert.equal(streamed.calls[0].text, 'df -h\nuname');
  const messages = [...request.messages, message, {role: 'tool', tool_call_id: call.id, content: 'It rains there.'}];
  assert.equal((await client.chat.completions.create({...request, messages})).choices[0].message.content, 'Take an umbrella.');
});

test('tools of other services are left out and named', async () => {
  const {data, response} = await client.chat.completions.create(
    {...ask('How is it in one city?'), tools: [{type: 'web_search'}, ...tools]}).withResponse();
  assert.equal(data.choices[0].finish_reason, 'tool_calls');
  assert.match(response.headers.get('x-stagecoach-ignored'), /tools\.web_search/);
});

test('the old form of tools is refused with the new one', async () => {
  const {tools: _, ...plain} = ask('Hm.');
  await assert.rejects(client.chat.completions.create({...plain, functions: [{name: 'f'}]}), error => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'functions');
    assert.match(error.message, /'tools'/);
    return true;
  });
  await assert.rejects(client.chat.completions.create({...ask('Hm.'), function_call: {name: weather.name}}), error =>
    error.status === 400 && error.param === 'function_call' && /'tool_choice'/.test(error.message));
});

test('what this server does not do is said at once, and not asked for again', async () => {
  const patient = new OpenAI({baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 3});
  const refused = async () => server.metric('stagecoach_http_requests_total', 'status="501"').catch(() => 0);
  const before = await refused();
  await assert.rejects(patient.embeddings.create({model: 'm', input: 'a'}), error =>
    error.status === 501 && error.code === 'not_supported' && /embeddings/.test(error.message));
  await assert.rejects(patient.images.generate({model: 'm', prompt: 'a'}), error => error.status === 501);
  assert.equal(await refused() - before, 2);
  // A base URL that lacks its /v1, or has it twice.
  for (const base of ['', '/v1/v1']) {
    const lost = new OpenAI({baseURL: server.url + base, apiKey: 'none', maxRetries: 0});
    await assert.rejects(lost.chat.completions.create(ask('Hm.')), error =>
      error.status === 404 && error.code === 'not_found' && /; use /.test(error.message));
  }
});
