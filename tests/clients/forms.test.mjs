// Answers that are held to a form, with OpenAI's and Anthropic's own clients and their helpers that parse them, against a real server. The
// demo model knows of no form: what it says has one by the grammar alone. It does not think before, which it would do without an end.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import {jsonSchemaOutputFormat} from '@anthropic-ai/sdk/helpers/json-schema';
import OpenAI from 'openai';
import {makeParseableResponseFormat} from 'openai/lib/parser';
import {Server} from './server.mjs';
import {templateFile} from './shapes.mjs';

const schema = {
  type: 'object', required: ['city', 'days', 'why'], additionalProperties: false,
  properties: {
    city: {type: 'string', enum: ['Paris', 'Rome']}, days: {type: 'integer', minimum: 1, maximum: 9},
    why: {anyOf: [{type: 'null'}, {type: 'string', maxLength: 20}]},
  },
};
function assertTrip(trip) {
  assert.deepEqual(Object.keys(trip), ['city', 'days', 'why']);
  assert.ok(['Paris', 'Rome'].includes(trip.city), trip.city);
  assert.ok(Number.isInteger(trip.days) && trip.days >= 1 && trip.days <= 9, `${trip.days} days`);
  assert.ok(trip.why === null || [...trip.why].length <= 20, trip.why);
}

const messages = [{role: 'user', content: 'Where to?'}];
const request = {model: 'demo', messages, max_tokens: 300, seed: 5, temperature: 1, reasoning_effort: 'none'};
const functions = ['travel', 'stay'].map(name => ({name, strict: true, parameters: schema}));
const tools = functions.map(made => ({type: 'function', function: made}));
const blocks = functions.map(({name, parameters}) => ({name, input_schema: parameters}));
let server, openai, anthropic;

before(async () => {
  server = await Server.start(['--chat-template-file', templateFile]);
  openai = new OpenAI({baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 0});
  anthropic = new Anthropic({baseURL: server.url, apiKey: 'none', maxRetries: 0});
});
after(async () => assert.equal(await server.stop(), 0, server.log));

test('chat completions are parsed, whole and streamed', async () => {
  const format = {type: 'json_schema', json_schema: {name: 'trip', strict: true, schema}};
  const whole = (await openai.chat.completions.parse({...request, response_format: format})).choices[0];
  assert.equal(whole.finish_reason, 'stop');
  assertTrip(whole.message.parsed);
  const streamed = (await openai.chat.completions.stream({...request, response_format: format}).finalChatCompletion()).choices[0];
  assert.deepEqual(streamed.message.parsed, whole.message.parsed);
  // As helpers for libraries of schemas make it.
  const own = makeParseableResponseFormat(format, content => ({trip: JSON.parse(content)}));
  const {trip} = (await openai.chat.completions.parse({...request, response_format: own})).choices[0].message.parsed;
  assert.deepEqual(trip, whole.message.parsed);
  const any = (await openai.chat.completions.create({...request, max_tokens: 600, response_format: {type: 'json_object'}})).choices[0];
  if (any.finish_reason === 'stop') assert.equal(typeof JSON.parse(any.message.content), 'object');
});

test('a call that is required is one, and strict arguments are parsed', async () => {
  const required = (await openai.chat.completions.parse({...request, tools, tool_choice: 'required', parallel_tool_calls: false})).choices[0];
  assert.equal(required.finish_reason, 'tool_calls');
  assert.equal(required.message.content, null);
  assert.equal(required.message.tool_calls.length, 1);
  assertTrip(required.message.tool_calls[0].function.parsed_arguments);
  for (const {name} of functions) {
    const tool_choice = {type: 'function', function: {name}};
    const [named] = (await openai.chat.completions.create({...request, tools, tool_choice})).choices;
    assert.deepEqual(named.message.tool_calls.map(call => call.function.name), [name]);
    assertTrip(JSON.parse(named.message.tool_calls[0].function.arguments));
    const [streamed] = (await openai.chat.completions.stream({...request, tools, tool_choice}).finalChatCompletion()).choices;
    assert.equal(streamed.message.tool_calls[0].function.arguments, named.message.tool_calls[0].function.arguments);
  }
});

test('responses are parsed, and call', async () => {
  const {messages: input, max_tokens: max_output_tokens, seed, temperature} = request;
  const base = {model: 'demo', input, max_output_tokens, seed, temperature, reasoning: {effort: 'none'}};
  const response = await openai.responses.parse({...base, text: {format: {type: 'json_schema', name: 'trip', strict: true, schema}}});
  assert.equal(response.status, 'completed');
  assertTrip(response.output_parsed);
  assert.equal(response.text.format.name, 'trip');
  const flat = functions.map(made => ({type: 'function', ...made}));
  const called = await openai.responses.parse({...base, tools: flat, tool_choice: {type: 'function', name: 'stay'}});
  assert.deepEqual(called.output.map(item => [item.type, item.name]), [['function_call', 'stay']]);
  assertTrip(called.output[0].parsed_arguments);
  const final = await openai.responses.stream({...base, tools: flat, tool_choice: 'required'}).finalResponse();
  assert.ok(final.output.every(item => item.type === 'function_call'));
});

test('messages are parsed, and call', async () => {
  const {reasoning_effort, ...rest} = request;
  const base = {...rest, thinking: {type: 'disabled'}};
  const format = jsonSchemaOutputFormat(schema, {transform: false});
  const message = await anthropic.messages.parse({...base, output_config: {format}});
  assert.equal(message.stop_reason, 'end_turn');
  assertTrip(message.parsed_output);
  for (const tool_choice of [{type: 'any', disable_parallel_tool_use: true}, {type: 'tool', name: 'stay'}]) {
    const called = await anthropic.messages.create({...base, tools: blocks, tool_choice});
    assert.equal(called.stop_reason, 'tool_use');
    assert.deepEqual(called.content.map(block => block.type), ['tool_use']);
    assertTrip(called.content[0].input);
    if (tool_choice.name) assert.equal(called.content[0].name, tool_choice.name);
    const final = await anthropic.messages.stream({...base, tools: blocks, tool_choice}).finalMessage();
    assert.deepEqual(final.content[0].input, called.content[0].input);
  }
});

test('what a schema asks that is not supported is named', async () => {
  const wrong = {type: 'object', properties: {a: {type: 'array', uniqueItems: true}}};
  const format = {type: 'json_schema', json_schema: {name: 'a', schema: wrong}};
  await assert.rejects(openai.chat.completions.create({...request, response_format: format}), error => {
    assert.ok(error instanceof OpenAI.BadRequestError, String(error));
    assert.equal(error.code, 'unsupported_schema');
    assert.equal(error.param, 'response_format.json_schema.schema');
    assert.match(error.message, /\/properties\/a\/uniqueItems/);
    return true;
  });
  await assert.rejects(anthropic.messages.create({model: 'demo', messages, max_tokens: 9, output_config: {format: {type: 'json_schema', schema: wrong}}}),
                       error => error instanceof Anthropic.BadRequestError && /\/properties\/a\/uniqueItems/.test(error.message));
});
