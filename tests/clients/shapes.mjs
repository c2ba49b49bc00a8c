// What a model of the Hermes family is told and writes, and what every well-formed stream of the three conversation APIs has.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';

export const templateFile = new URL('hermes.jinja', import.meta.url).pathname;

// A script whose answers are read as such a model's.
export const script = (answers, options = {}) =>
  ({context: 65536, chat_template: readFileSync(templateFile, 'utf8'), answers, ...options});

// A call as the model writes it.
export const written = (name, args) => `<tool_call>\n${JSON.stringify({name, arguments: args})}\n</tool_call>`;
export const thought = text => `<think>\n${text}\n</think>\n\n`;

export const weather = {
  name: 'get_weather', description: 'The weather of a city.',
  schema: {type: 'object', properties: {city: {type: 'string'}}, required: ['city'], additionalProperties: false},
};

export const post = (server, path, body, headers = {}) => fetch(server.url + path, {
  method: 'POST', headers: {'content-type': 'application/json', ...headers}, body: JSON.stringify(body),
});

// The events of a stream to its end: {event, data}, the data parsed where it is JSON. Comments are left out.
export async function eventsOf(response) {
  assert.equal(response.status, 200, response.status === 200 ? '' : await response.text());
  assert.match(response.headers.get('content-type'), /^text\/event-stream/);
  const events = [];
  const text = await response.text();
  assert.ok(text.endsWith('\n\n'), 'the last event is whole');
  for (const block of text.split('\n\n')) {
    const read = {};
    for (const line of block.split('\n')) {
      if (line === '' || line.startsWith(':')) continue;
      const colon = line.indexOf(': ');
      assert.ok(colon > 0, `a line without a field: ${line}`);
      read[line.slice(0, colon)] = line.slice(colon + 2);
    }
    if (read.data !== undefined) events.push({event: read.event, data: read.data === '[DONE]' ? read.data : JSON.parse(read.data)});
  }
  return events;
}

// Of chat completions with one choice: the message and why it ended.
export function chatOf(events) {
  assert.equal(events.at(-1).data, '[DONE]');
  const message = {role: null, content: '', reasoning: '', calls: []};
  let finish = null, usage = null;
  for (const {event, data} of events.slice(0, -1)) {
    assert.equal(event, undefined);
    assert.equal(data.object, 'chat.completion.chunk');
    assert.equal(data.id, events[0].data.id);
    if (data.choices.length === 0) {
      usage = data.usage;
      continue;
    }
    const [{delta, finish_reason}] = data.choices;
    assert.equal(finish, null, 'nothing comes after the end');
    assert.equal(typeof delta.content, 'string', 'every delta has a content');
    message.role ??= delta.role ?? null;
    message.content += delta.content;
    message.reasoning += delta.reasoning_content ?? '';
    for (const call of delta.tool_calls ?? []) {
      if (call.id !== undefined) {
        assert.equal(call.index, message.calls.length);
        message.calls.push({id: call.id, type: call.type, name: call[call.type].name, text: ''});
      }
      const last = message.calls.at(-1);
      assert.equal(call.index, message.calls.length - 1, 'calls come one after the other');
      last.text += call.function?.arguments ?? call.custom?.input ?? '';
    }
    finish = finish_reason;
  }
  assert.equal(message.role, 'assistant');
  assert.notEqual(finish, null);
  return {message, finish, usage};
}

const openParts = {output_text: 'response.output_text', reasoning_text: 'response.reasoning_text'};

// Of Responses: the final object, which the events before it have told piece by piece.
export function responseOf(events) {
  const types = events.map(({data}) => data.type);
  assert.deepEqual(types.slice(0, 2), ['response.created', 'response.in_progress']);
  events.forEach(({event, data}, i) => {
    assert.equal(event, data.type);
    assert.equal(data.sequence_number, i);
  });
  for (const {data} of events.slice(0, 2)) assert.deepEqual(data.response.output, []);
  const final = events.at(-1).data;
  assert.ok(['response.completed', 'response.incomplete', 'response.failed'].includes(final.type), final.type);
  assert.equal(final.type, `response.${final.response.status}`);
  assert.equal(final.response.id, events[0].data.response.id);

  const output = [];
  let item = null, part = null, said = '';
  for (const {data} of events.slice(2, -1)) {
    if (data.type === 'response.in_progress') continue;  // again, while a long prompt is read
    if (data.type !== 'response.output_item.added') assert.notEqual(item, null, `${data.type} of no item`);
    assert.equal(data.output_index, output.length);
    if (data.type === 'response.output_item.added') {
      assert.equal(item, null, 'one item at a time');
      item = data.item;
      said = '';
      continue;
    }
    if (data.type === 'response.output_item.done') {
      assert.equal(data.item.id, item.id);
      assert.equal(data.item.type, item.type);
      if (item.type === 'function_call') assert.equal(data.item.arguments, said);
      if (item.type === 'custom_tool_call') assert.equal(data.item.input, said);
      assert.equal(part, null);
      output.push(data.item);
      item = null;
      continue;
    }
    assert.equal(data.item_id, item.id);
    if (data.type === 'response.content_part.added') {
      assert.equal(part, null, 'one part at a time');
      part = data.part;
      said = '';
      assert.equal(data.content_index, 0);
    } else if (data.type === 'response.content_part.done') {
      assert.equal(data.part.type, part.type);
      assert.equal(data.part.text, said);
      part = null;
    } else if (data.type.endsWith('.delta')) {
      said += data.delta;
      if (part !== null) assert.equal(data.type, `${openParts[part.type]}.delta`);
    } else {
      assert.match(data.type, /\.done$/);
      assert.equal(data.text ?? data.arguments ?? data.input, said);
      if (data.type === 'response.function_call_arguments.done') assert.equal(data.name, item.name);
    }
  }
  assert.equal(item, null);
  if (final.type !== 'response.failed') assert.deepEqual(final.response.output, output);
  return final.response;
}

const blockText = {text_delta: 'text', thinking_delta: 'thinking', input_json_delta: 'partial_json', signature_delta: 'signature'};

// Of Messages: the message as its events told it.
export function messageOf(all) {
  const events = all.filter(({event}) => event !== 'ping');
  for (const {event, data} of events) assert.equal(event, data.type, 'readers drop events without a name');
  assert.equal(events[0].event, 'message_start');
  assert.equal(events.at(-1).event, 'message_stop');
  assert.equal(events.at(-2).event, 'message_delta');
  const message = events[0].data.message;
  assert.deepEqual(message.content, []);
  assert.equal(message.stop_reason, null);
  let open = null;
  for (const {data} of events.slice(1, -2)) {
    assert.equal(data.index, message.content.length);
    if (data.type === 'content_block_start') {
      assert.equal(open, null, 'one block at a time');
      open = {...data.content_block, json: ''};
    } else if (data.type === 'content_block_delta') {
      const text = data.delta[blockText[data.delta.type]];
      assert.equal(typeof text, 'string');
      if (data.delta.type === 'input_json_delta') open.json += text;
      else open[blockText[data.delta.type]] += text;
    } else {
      assert.equal(data.type, 'content_block_stop');
      const {json, ...block} = open;
      if (block.type === 'tool_use') block.input = JSON.parse(json || '{}');
      message.content.push(block);
      open = null;
    }
  }
  assert.equal(open, null);
  const {delta, usage} = events.at(-2).data;
  return {...message, ...delta, usage: {...message.usage, ...usage}};
}
