// OpenAI's own client against a real server and the demo model: what users change is the URL. The model's words mean nothing here;
// that the same request gives the same ones, by every way there is, does.
import assert from 'node:assert/strict';
import {after, before, describe, test} from 'node:test';
import OpenAI from 'openai';
import {eventually, Server} from './server.mjs';

const messages = [{role: 'system', content: 'Be brief.'}, {role: 'user', content: 'In the beginning'}];
const request = {model: 'demo', messages, max_tokens: 24, seed: 7, temperature: 0.8};

describe('a server without keys', () => {
  let server, client;
  before(async () => {
    server = await Server.start();
    client = new OpenAI({baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 0});
  });
  after(async () => assert.equal(await server.stop(), 0, server.log));

  test('models are listed', async () => {
    const models = [];
    for await (const model of client.models.list()) models.push(model);
    assert.equal(models.length, 1);
    assert.equal(models[0].object, 'model');
    const model = await client.models.retrieve(models[0].id);
    assert.equal(model.id, models[0].id);
    assert.ok(model.max_model_len > 0);
  });

  test('a chat completion is whole', async () => {
    const answer = await client.chat.completions.create(request);
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.choices.length, 1);
    assert.equal(answer.choices[0].message.role, 'assistant');
    assert.ok(['stop', 'length'].includes(answer.choices[0].finish_reason));
    assert.ok(answer.usage.completion_tokens > 0 && answer.usage.completion_tokens <= 24);
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    assert.match(answer.system_fingerprint, /^sc-/);
    assert.ok(answer._request_id);
  });

  test('a stream says what the whole answer says', async () => {
    const whole = await client.chat.completions.create(request);
    const stream = await client.chat.completions.create({...request, stream: true, stream_options: {include_usage: true}});
    let text = '', reason = null, usage = null, first = null;
    for await (const chunk of stream) {
      assert.equal(chunk.object, 'chat.completion.chunk');
      if (chunk.choices.length === 0) {
        usage = chunk.usage;
        continue;
      }
      assert.equal(chunk.usage, null);
      assert.equal(typeof chunk.choices[0].delta.content, 'string');
      first ??= chunk.choices[0].delta;
      text += chunk.choices[0].delta.content;
      reason = chunk.choices[0].finish_reason ?? reason;
    }
    assert.deepEqual(first, {role: 'assistant', content: ''});
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(reason, whole.choices[0].finish_reason);
    assert.equal(usage.prompt_tokens, whole.usage.prompt_tokens);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  });

  test('the stream helper assembles the same answer', async () => {
    const whole = await client.chat.completions.create(request);
    const stream = client.chat.completions.stream(request);
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
    assert.equal(await stream.finalContent(), whole.choices[0].message.content);
  });

  test('of two choices each is what its own seed gives', async () => {
    const two = await client.chat.completions.create({...request, n: 2});
    assert.equal(two.choices.length, 2);
    for (const i of [0, 1]) {
      const one = await client.chat.completions.create({...request, seed: 7 + i});
      assert.equal(two.choices[i].index, i);
      assert.equal(two.choices[i].message.content, one.choices[0].message.content);
    }
    assert.notEqual(two.choices[0].message.content, two.choices[1].message.content);
    const stream = await client.chat.completions.create({...request, n: 2, stream: true});
    const texts = ['', ''];
    for await (const chunk of stream) for (const choice of chunk.choices) texts[choice.index] += choice.delta.content;
    assert.deepEqual(texts, two.choices.map(choice => choice.message.content));
  });

  test('a stop string ends the answer before it', async () => {
    const whole = (await client.chat.completions.create(request)).choices[0].message.content;
    const stop = whole.slice(8, 12);
    const stopped = await client.chat.completions.create({...request, stop});
    assert.equal(stopped.choices[0].message.content, whole.slice(0, whole.indexOf(stop)));
    assert.equal(stopped.choices[0].finish_reason, 'stop');
  });

  test('log-probabilities cover the text', async () => {
    const answer = await client.chat.completions.create({...request, logprobs: true, top_logprobs: 3});
    const content = answer.choices[0].logprobs.content;
    const bytes = content.flatMap(entry => entry.bytes);
    assert.equal(Buffer.from(bytes).toString('utf8'), answer.choices[0].message.content);
    for (const entry of content) {
      assert.ok(entry.logprob <= 0);
      assert.equal(entry.top_logprobs.length, 3);
      assert.ok(entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob);
    }
  });

  test('a bias keeps tokens out', async () => {
    const greedy = {...request, temperature: 0, logprobs: true, max_tokens: 1};
    const first = (await client.chat.completions.create(greedy)).choices[0].logprobs.content[0];
    const {tokens} = await (await fetch(server.url + '/tokenize', {
      method: 'POST', headers: {'content-type': 'application/json'},
      body: JSON.stringify({prompt: first.token, add_special_tokens: false}),
    })).json();
    if (tokens.length !== 1) return;  // the token's text alone is cut otherwise
    const other = await client.chat.completions.create({...greedy, logit_bias: {[tokens[0]]: -100}});
    assert.notEqual(other.choices[0].logprobs.content[0].token, first.token);
  });

  test('tools that the model may call are taken', async () => {
    const tools = [{type: 'function', function: {name: 'look', description: 'Looks.', parameters: {type: 'object', properties: {}}}}];
    const answer = await client.chat.completions.create({...request, tools});
    assert.equal(typeof answer.choices[0].message.content, 'string');
    const {data, response} = await client.chat.completions.create({...request, tools, store: true}).withResponse();
    assert.equal(data.choices[0].message.content, answer.choices[0].message.content);
    const ignored = response.headers.get('x-stagecoach-ignored').split(', ');
    for (const name of ['tools', 'store']) assert.ok(ignored.includes(name), `${name} of ${ignored}`);
  });

  test('what cannot be honoured is refused by name', async () => {
    for (const [field, value] of Object.entries({
      functions: [{name: 'f'}], web_search_options: {}, modalities: ['audio'],
    })) {
      await assert.rejects(client.chat.completions.create({...request, [field]: value}), error => {
        assert.ok(error instanceof OpenAI.BadRequestError, String(error));
        assert.equal(error.code, 'unsupported_parameter');
        assert.equal(error.param, field);
        return true;
      });
    }
  });

  test('a wrong value is an error with its field', async () => {
    await assert.rejects(client.chat.completions.create({...request, temperature: 3}), error => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.equal(error.param, 'temperature');
      assert.equal(error.type, 'invalid_request_error');
      assert.match(error.message, /0.*2/);
      return true;
    });
    await assert.rejects(client.chat.completions.create({model: 'demo', messages: []}), OpenAI.BadRequestError);
  });

  test('a prompt longer than the context is an error that clients know', async () => {
    await assert.rejects(client.chat.completions.create({...request, messages: [{role: 'user', content: 'word '.repeat(4000)}]}), error => {
      assert.equal(error.status, 400);
      assert.equal(error.code, 'context_length_exceeded');
      assert.match(error.message, /prompt is too long: \d+ tokens > \d+ maximum/);
      return true;
    });
  });

  test('an aborted stream gives its blocks back', async () => {
    const stream = await client.chat.completions.create({...request, max_tokens: 900, ignore_eos: true, stream: true});
    let chunks = 0;
    try {
      for await (const chunk of stream) if (++chunks === 5) stream.controller.abort();
    } catch (error) {
      assert.ok(error instanceof OpenAI.APIUserAbortError, String(error));
    }
    await eventually('the blocks of an aborted stream are free', async () =>
      await server.metric('stagecoach_requests_running') === 0 && await server.metric('stagecoach_kv_blocks', 'state="referenced"') === 0);
  });

  test('completions take texts and tokens', async () => {
    const plain = {model: 'demo', prompt: 'In the beginning', max_tokens: 12, seed: 3, temperature: 0.8};
    const one = await client.completions.create(plain);
    assert.equal(one.object, 'text_completion');
    const list = await client.completions.create({...plain, prompt: ['In the beginning', 'And it came to pass']});
    assert.deepEqual(list.choices.map(choice => choice.index), [0, 1]);
    const {tokens} = await (await fetch(server.url + '/tokenize', {
      method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify({prompt: plain.prompt}),
    })).json();
    const byTokens = await client.completions.create({...plain, prompt: tokens});
    assert.equal(byTokens.choices[0].text, one.choices[0].text);
    assert.equal(list.choices[0].text, one.choices[0].text);
    let text = '';
    for await (const chunk of await client.completions.create({...plain, stream: true})) text += chunk.choices[0].text;
    assert.equal(text, one.choices[0].text);
  });

  test('an echoed prompt is scored', async () => {
    const answer = await client.completions.create({model: 'demo', prompt: 'In the beginning', max_tokens: 0, echo: true, logprobs: 2});
    const {text, logprobs} = answer.choices[0];
    assert.equal(text, 'In the beginning');
    assert.equal(logprobs.tokens.length, logprobs.token_logprobs.length);
    assert.equal(logprobs.token_logprobs[0], null);
    assert.ok(logprobs.token_logprobs.slice(1).every(value => value <= 0));
  });

  test('many at once are answered as one alone', async () => {
    const alone = (await client.chat.completions.create(request)).choices[0].message.content;
    const answers = await Promise.all(Array.from({length: 24}, () => client.chat.completions.create(request)));
    for (const answer of answers) assert.equal(answer.choices[0].message.content, alone);
  });
});

describe('a server with keys, a name and a short queue', () => {
  let server;
  before(async () => {
    server = await Server.start(
      // Steps that take their time, or a busy machine's client sends one request when another is answered.
      ['--served-model-name', 'demo,other', '--max-num-queued-reqs', '2', '--max-num-seqs', '1', '--stage-delay-us', '5000'],
      {environment: {STAGECOACH_API_KEY: 'sk-right'}});
  });
  after(() => server.stop());

  test('a wrong key is refused', async () => {
    const client = new OpenAI({baseURL: server.url + '/v1', apiKey: 'sk-wrong', maxRetries: 0});
    await assert.rejects(client.models.list(), OpenAI.AuthenticationError);
    await assert.rejects(client.chat.completions.create(request), error => error.code === 'invalid_api_key');
  });

  test('an unknown model is not found', async () => {
    const client = new OpenAI({baseURL: server.url + '/v1', apiKey: 'sk-right', maxRetries: 0});
    await assert.rejects(client.chat.completions.create({...request, model: 'gpt-4'}), error => {
      assert.ok(error instanceof OpenAI.NotFoundError);
      assert.equal(error.code, 'model_not_found');
      return true;
    });
    assert.equal((await client.chat.completions.create({...request, model: 'other'})).model, 'other');
  });

  test('a full queue is said at once, and clients that try again are answered', async () => {
    const impatient = new OpenAI({baseURL: server.url + '/v1', apiKey: 'sk-right', maxRetries: 0});
    const long = {...request, max_tokens: 200, ignore_eos: true};
    const results = await Promise.allSettled(Array.from({length: 8}, () => impatient.chat.completions.create(long)));
    const refused = results.filter(result => result.status === 'rejected').map(result => result.reason);
    assert.ok(refused.length > 0, 'eight at once fitted into a queue of two');
    for (const error of refused) {
      assert.ok(error instanceof OpenAI.RateLimitError, String(error));
      assert.ok(Number(error.headers.get('retry-after')) >= 1);
    }
    assert.ok(results.some(result => result.status === 'fulfilled'));
    // The server's guess of how long the queue takes is in whole seconds, up to a minute: cut short here.
    const soon = async (url, init) => {
      const response = await fetch(url, init);
      if (response.status === 429) response.headers.set('retry-after-ms', '200');
      return response;
    };
    const patient = new OpenAI({baseURL: server.url + '/v1', apiKey: 'sk-right', maxRetries: 50, fetch: soon});
    const answers = await Promise.all(Array.from({length: 4}, () => patient.chat.completions.create({...request, max_tokens: 8})));
    assert.equal(answers.length, 4);
  });
});

test('an error in the middle of a stream is thrown', async () => {
  const server = await Server.start(['--drain-timeout', '200ms', '--stage-delay-us', '10000']);
  const client = new OpenAI({baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 0});
  const stream = await client.chat.completions.create({...request, max_tokens: 900, ignore_eos: true, stream: true});
  let chunks = 0;
  await assert.rejects(async () => {
    for await (const chunk of stream) if (++chunks === 3) server.process.kill('SIGTERM');
  }, error => {
    assert.ok(error instanceof OpenAI.APIError, String(error));
    assert.equal(error.code, 'draining');
    return true;
  });
  assert.ok(chunks >= 3);
  assert.equal(await server.exited, 0);
});
