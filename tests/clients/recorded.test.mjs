// What coding agents and chat programs send, as recorded (field by field; the texts are placeholders of the same sizes), and variations of
// it. Each gets 200 and a well-formed stream. Then a real model: the second turn of each is found in the prefix cache, and one
// conversation gives the same tokens by all three APIs.
import assert from 'node:assert/strict';
import {after, before, describe, test} from 'node:test';
import {Server} from './server.mjs';
import {chatOf, eventsOf, messageOf, post, responseOf, script, templateFile, thought, written} from './shapes.mjs';

// Some words, about so many bytes.
const text = (words, bytes) => (words + ' ').repeat(Math.ceil(bytes / (words.length + 1))).slice(0, bytes);

// `scale` shortens the long texts.
function codex(scale = 1) {
  const say = (id, role, ...texts) => ({type: 'message', id, role, content: texts.map(text => ({type: 'input_text', text}))});
  return {
    model: 'm', stream: true, store: false, tool_choice: 'auto', parallel_tool_calls: true, reasoning: {summary: 'auto'},
    include: ['reasoning.encrypted_content'], prompt_cache_key: '0198c0de-0000-7000-8000-000000000000',
    client_metadata: {turn_id: '0198c0de-0000-7000-8000-000000000001'},
    input: [
      say('msg_a', 'developer', text('Work with care.', 17000 * scale)),
      say('msg_b', 'developer', text('Nothing is allowed.', 2000 * scale), text('Skills are few.', 300 * scale)),
      say('msg_c', 'user', '<environment_context><cwd>/work</cwd></environment_context>'),
      say('msg_d', 'user', 'Say hello'),
    ],
    tools: [
      {type: 'function', name: 'exec_command', description: 'Runs a command.', strict: false,
       parameters: {type: 'object', properties: {cmd: {type: 'string'}}, required: ['cmd'], additionalProperties: false}},
      {type: 'namespace', name: 'multi_agent_v1', description: 'Helpers.',
       tools: [{type: 'function', name: 'send_input', parameters: {type: 'object'}}]},
      {type: 'web_search', external_web_access: false},
    ],
  };
}

// The next turn: what was said, and what a command gave.
const codexNext = (body, output) => ({...body, input: [
  ...body.input, ...output,
  ...output.filter(item => item.type === 'function_call').map(({call_id}) => ({type: 'function_call_output', call_id, output: 'done: hello'})),
  {type: 'message', role: 'user', content: [{type: 'input_text', text: 'And now?'}]},
]});

const schema = 'https://json-schema.org/draft/2020-12/schema';
const stamp = more => `x-anthropic-billing-header: cc_version=2.1.330.${more}; cc_entrypoint=sdk-cli;`;
function claude(scale = 1, billing = stamp('572')) {
  const kept = {cache_control: {type: 'ephemeral'}};
  return {
    model: 'm', max_tokens: 32000, stream: true, thinking: {type: 'adaptive', display: 'omitted'}, output_config: {effort: 'high'},
    context_management: {edits: [{type: 'clear_thinking_20251015', keep: 'all'}]}, metadata: {user_id: '{"device_id":"d"}'},
    system: [{type: 'text', text: billing}, {type: 'text', text: 'You are a helper of people who write programs, at their side.', ...kept},
             {type: 'text', text: text('Be of use.', 7000 * scale), ...kept}],
    messages: [
      {role: 'user', content: [{type: 'text', text: '<system-reminder>The day is fine.</system-reminder>'}, {type: 'text', text: 'Say hello'}]},
      {role: 'system', content: [{type: 'text', text: text('Tools come later.', 9000 * scale), ...kept}]},
    ],
    tools: [
      {name: 'Bash', description: 'Runs a command.', input_schema: {
        $schema: schema, type: 'object', additionalProperties: false, required: ['command'], properties: {
          command: {type: 'string', minLength: 1, maxLength: 10000, pattern: '^.+$'},
          timeout: {type: 'number', exclusiveMinimum: 0, maximum: 600000, default: 1000},
          modes: {type: 'array', maxItems: 4, items: {enum: ['a', 'b']}}}}},
      {name: 'DeferredToolPlaceholder', description: 'Is loaded when it is asked for.', input_schema: {type: 'object'}, defer_loading: true},
    ],
  };
}

// The system message becomes a string, thinking and uses go back as they came.
const claudeNext = (body, content) => ({...body, messages: [
  body.messages[0], {role: 'system', content: body.messages[1].content[0].text}, {role: 'assistant', content},
  {role: 'user', content: [
    ...content.filter(block => block.type === 'tool_use').map(({id}) =>
      ({type: 'tool_result', tool_use_id: id, content: 'done: hello', cache_control: {type: 'ephemeral'}})),
    {type: 'text', text: 'And now?'}]},
]});

const chat = {
  model: 'm', stream: true, stream_options: {include_usage: true}, temperature: 0,
  messages: [
    {role: 'system', content: 'Be brief.'}, {role: 'user', content: [{type: 'text', text: 'Look around.'}]},
    {role: 'assistant', content: null, tool_calls: [{id: 'call_1', type: 'function', function: {name: 'look', arguments: '{"at":"all"}'}}]},
    {role: 'tool', tool_call_id: 'call_1', content: 'done: hello'}, {role: 'user', content: 'Say hello'},
  ],
  tools: [{type: 'function', function: {name: 'look', parameters: {type: 'object', properties: {at: {type: 'string'}}}}}],
};

// A member that nobody knows in every object, but for what a schema calls its properties.
function strange(value) {
  if (Array.isArray(value)) return value.map(strange);
  if (value === null || typeof value !== 'object') return value;
  const members = Object.entries(value).map(([name, member]) =>
    [name, name === 'properties' ? member : strange(member)]);
  return {...Object.fromEntries(members), x_unheard_of: {deep: [1, null, 'a']}};
}
const without = (body, ...names) => Object.fromEntries(Object.entries(body).filter(([name]) => !names.includes(name)));

describe('before a scripted model', () => {
  const call = written('exec_command', {cmd: 'echo hello'}), use = written('Bash', {command: 'echo hello'});
  let server;
  before(async () => {
    server = await Server.scripted(script([
      {when: 'And now?', text: thought('It is over.') + 'That was all.'},
      {when: 'exec_command', text: thought('A command does it.') + 'I say it.\n' + call, each_ms: 1},
      {when: 'Bash', text: thought('A command does it.') + 'I say it.\n' + use, each_ms: 1},
      {text: 'Hello.'},
    ]));
  });
  after(async () => assert.equal(await server.stop(), 0, server.log));
  const key = {authorization: 'Bearer none'};
  const responses = async (body, headers = {}) => responseOf(await eventsOf(await post(server, '/v1/responses', body, {...key, ...headers})));
  const messages = async (body, {path = '/v1/messages?beta=true', headers = {}} = {}) =>
    messageOf(await eventsOf(await post(server, path, body, {...key, 'anthropic-version': '2023-06-01', accept: 'application/json', ...headers})));
  const chats = async body => chatOf(await eventsOf(await post(server, '/v1/chat/completions', body, key)));

  test('a turn of Codex CLI, and its next one', async () => {
    const first = await responses(codex());
    assert.equal(first.status, 'completed');
    assert.deepEqual(first.output.map(item => item.type), ['reasoning', 'message', 'function_call']);
    assert.equal(first.output[2].arguments, '{"cmd":"echo hello"}');
    const second = await responses(codexNext(codex(), first.output));
    assert.equal(second.output.at(-1).content[0].text, 'That was all.');
    assert.ok(second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens);
  });

  test('variations of Codex CLI', async () => {
    const body = codex();
    const late = {type: 'additional_tools', tools: [{type: 'function', name: 'exec_command', parameters: {type: 'object'}}]};
    const cases = {
      'no model': without(body, 'model'),
      'no tools': without(body, 'tools', 'tool_choice', 'parallel_tool_calls'),
      'additional tools': {...body, tools: [], input: [late, ...body.input]},
      'members that nobody knows': strange(body),
      'items that nobody knows': {...body, input: [{type: 'web_search_call', id: 'ws_1', status: 'completed'}, ...body.input, {type: 'compaction', encrypted_content: 'a'}]},
      'tools that nobody knows': {...body, tools: [...body.tools, {type: 'computer_use_preview'}, {type: 'mcp', server_label: 'a'}, {type: 'local_shell'}]},
      'an instruction': {...body, instructions: text('Be brief.', 4000)},
      'no reasoning': {...body, reasoning: {effort: 'none'}},
      'nothing to say': {...body, input: []},
    };
    for (const [name, changed] of Object.entries(cases)) {
      const response = await responses(changed).catch(error => { throw new Error(`${name}: ${error.message}`, {cause: error}); });
      assert.equal(response.status, 'completed', name);
      assert.ok(response.output.length > 0, name);
      assert.equal(response.model, 'demo-q8_0', name);
    }
    const named = await responses(cases['additional tools']);
    assert.equal(named.output.at(-1).name, 'exec_command');
  });

  test('a turn of Claude Code, and its next one', async () => {
    const first = await messages(claude());
    assert.equal(first.stop_reason, 'tool_use');
    assert.deepEqual(first.content.map(block => block.type), ['thinking', 'text', 'tool_use']);
    assert.deepEqual(first.content[2].input, {command: 'echo hello'});
    const second = await messages(claudeNext(claude(), first.content));
    assert.equal(second.content.at(-1).text, 'That was all.');
    assert.equal(second.stop_reason, 'end_turn');
  });

  test('variations of Claude Code', async () => {
    const body = claude();
    const cases = {
      'no model': [without(body, 'model')],
      'a small side model': [{...body, model: 'claude-haiku-4-5-20251001', tools: []}],
      'no query': [body, {path: '/v1/messages'}],
      'a key of its own header': [body, {headers: {authorization: '', 'x-api-key': 'none'}}],
      'betas': [body, {headers: {'anthropic-beta': 'claude-code-20250219,interleaved-thinking-2025-05-14'}}],
      'members that nobody knows': [strange(body)],
      'a stamp of each request': [claude(1, stamp('572') + ' cch=a5145;')],
      'no stamp': [{...body, system: body.system.slice(1)}],
      'a system text': [{...body, system: 'Be brief.'}],
      'no system': [without(body, 'system')],
      'tools of its maker': [{...body, tools: [...body.tools, {type: 'web_search_20250305', name: 'web_search', max_uses: 5}, {type: 'bash_20250124', name: 'bash'}]}],
      'no thinking': [{...body, thinking: {type: 'disabled'}}],
    };
    const usage = {};
    for (const [name, [changed, how]] of Object.entries(cases)) {
      const message = await messages(changed, how).catch(error => { throw new Error(`${name}: ${error.message}`, {cause: error}); });
      assert.ok(['tool_use', 'end_turn'].includes(message.stop_reason), name);
      assert.equal(message.model, 'demo-q8_0', name);
      usage[name] = message.usage.input_tokens;
    }
    // What differs from one request to the next leaves no trace in the prompt.
    assert.equal(usage['a stamp of each request'], usage['no stamp']);
    assert.equal(usage['no query'], usage['no stamp']);
  });

  test('what Claude Code asks beside', async () => {
    assert.equal((await fetch(server.url + '/api/hello', {method: 'HEAD'})).status, 200);
    assert.equal((await post(server, '/api/event_logging/batch', {events: []})).status, 204);
    const {max_tokens, stream, ...body} = claude();
    const counted = await post(server, '/v1/messages/count_tokens?beta=true', body, key);
    assert.equal(counted.status, 200);
    assert.equal((await counted.json()).input_tokens, (await messages(claude())).usage.input_tokens);
  });

  test('chat programs', async () => {
    const first = await chats(chat);
    assert.equal(first.finish, 'stop');
    assert.equal(first.message.content, 'Hello.');
    assert.ok(first.usage.prompt_tokens > 0);
    for (const changed of [without(chat, 'model'), without(chat, 'tools'), strange(chat), {...chat, max_tokens: 32000},
                           {...chat, user: 'u', metadata: {}, store: false, service_tier: 'auto', verbosity: 'low'}]) {
      assert.equal((await chats(changed)).message.content, 'Hello.');
    }
    const models = await fetch(server.url + '/v1/models', {headers: key});
    assert.equal(models.status, 200);
  });
});

describe('before a real model', () => {
  let server;
  // Its context is small.
  before(async () => { server = await Server.start(['--chat-template-file', templateFile]); });
  after(async () => assert.equal(await server.stop(), 0, server.log));
  const some = {seed: 7, temperature: 0.8};
  const json = async (path, body) => {
    const answer = await post(server, path, body);
    assert.equal(answer.status, 200, answer.status === 200 ? '' : await answer.text());
    return answer.json();
  };

  test('the second turn of Codex CLI is found in the cache', async () => {
    const body = {...codex(0.01), ...some, max_output_tokens: 16};
    const first = responseOf(await eventsOf(await post(server, '/v1/responses', body)));
    const second = responseOf(await eventsOf(await post(server, '/v1/responses', codexNext(body, first.output))));
    const {cached_tokens} = second.usage.input_tokens_details;
    assert.ok(cached_tokens > first.usage.input_tokens - 64, `${cached_tokens} of ${first.usage.input_tokens}`);
  });

  test('the second turn of Claude Code is found in the cache, whatever it stamps', async () => {
    const body = more => ({...claude(0.01, stamp(more)), ...some, max_tokens: 16});
    const first = messageOf(await eventsOf(await post(server, '/v1/messages?beta=true', body('572'))));
    const next = claudeNext(body('891; cch=a5145'), first.content);
    const {usage} = messageOf(await eventsOf(await post(server, '/v1/messages?beta=true', next)));
    const asked = first.usage.input_tokens + first.usage.cache_read_input_tokens;
    assert.ok(usage.cache_read_input_tokens > asked - 64, `${usage.cache_read_input_tokens} of ${asked}`);
  });

  test('a conversation gives the same tokens by all three', async () => {
    const parameters = {type: 'object', properties: {book: {type: 'string'}}};
    const args = {book: 'Genesis'}, gave = 'In the beginning God created the heaven and the earth.';
    const byChat = await json('/v1/chat/completions', {
      ...some, max_tokens: 32, logprobs: true,
      messages: [
        {role: 'system', content: 'Be brief.'}, {role: 'user', content: 'What does it say?'},
        {role: 'assistant', content: 'I look.', reasoning_content: 'A book has it.',
         tool_calls: [{id: 'call_1', type: 'function', function: {name: 'read', arguments: JSON.stringify(args)}}]},
        {role: 'tool', tool_call_id: 'call_1', content: gave}, {role: 'user', content: 'And then?'}],
      tools: [{type: 'function', function: {name: 'read', description: 'Reads.', parameters}}],
    });
    const byResponses = await json('/v1/responses', {
      ...some, max_output_tokens: 32, include: ['message.output_text.logprobs'], instructions: 'Be brief.',
      input: [
        {role: 'user', content: [{type: 'input_text', text: 'What does it say?'}]},
        {type: 'reasoning', id: 'rs_1', summary: [], content: [{type: 'reasoning_text', text: 'A book has it.'}]},
        {type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [{type: 'output_text', text: 'I look.', annotations: []}]},
        {type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'read', arguments: JSON.stringify(args), status: 'completed'},
        {type: 'function_call_output', call_id: 'call_1', output: gave}, {role: 'user', content: 'And then?'}],
      tools: [{type: 'function', name: 'read', description: 'Reads.', parameters}],
    });
    const byMessages = await json('/v1/messages', {
      ...some, max_tokens: 32, system: 'Be brief.',
      messages: [
        {role: 'user', content: 'What does it say?'},
        {role: 'assistant', content: [{type: 'thinking', thinking: 'A book has it.', signature: ''}, {type: 'text', text: 'I look.'},
                                      {type: 'tool_use', id: 'toolu_1', name: 'read', input: args}]},
        {role: 'user', content: [{type: 'tool_result', tool_use_id: 'toolu_1', content: gave}, {type: 'text', text: 'And then?'}]}],
      tools: [{name: 'read', description: 'Reads.', input_schema: parameters}],
    });
    const {content} = byChat.choices[0].message;
    assert.ok(content.length > 20);
    assert.equal(byResponses.output.at(-1).content[0].text, content);
    assert.equal(byMessages.content.at(-1).text, content);
    assert.deepEqual(byResponses.output.at(-1).content[0].logprobs.map(({token, logprob}) => [token, logprob]),
                     byChat.choices[0].logprobs.content.map(({token, logprob}) => [token, logprob]));
    const asked = [byChat.usage.prompt_tokens, byResponses.usage.input_tokens,
                   byMessages.usage.input_tokens + byMessages.usage.cache_read_input_tokens];
    assert.deepEqual(asked, Array(3).fill(asked[0]));
    assert.deepEqual([byResponses.usage.output_tokens, byMessages.usage.output_tokens], Array(2).fill(byChat.usage.completion_tokens));
  });
});
