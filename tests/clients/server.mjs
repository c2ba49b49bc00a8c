// A server of its own for a test, on a port of the system's choice.
import {spawn} from 'node:child_process';
import {mkdtempSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

const model = process.env.STAGECOACH_MODEL;

export class Server {
  // `coordinator serve`. Resolves when the server says that it is ready.
  static start(options = [], {environment = {}} = {}) {
    return Server.run(process.env.STAGECOACH_COORDINATOR, ['serve', '-m', model, '--port', '0', '--max-num-seqs', '8', ...options],
                      environment);
  }

  // The service before an engine that plays `script`: tests/e2e/programs/scripted_server.cc says what it can be.
  static scripted(script) {
    const file = join(mkdtempSync(join(tmpdir(), 'stagecoach-')), 'script.json');
    writeFileSync(file, JSON.stringify(script));
    return Server.run(process.env.STAGECOACH_SCRIPTED_SERVER, [model, file], {});
  }

  static async run(program, words, environment) {
    const server = new Server();
    server.log = '';
    server.process = spawn(program, words, {stdio: ['ignore', 'inherit', 'pipe'], env: {...process.env, ...environment}});
    server.exited = new Promise(resolve => server.process.on('exit', (code, signal) => resolve(code ?? signal)));
    server.process.stderr.on('data', data => { server.log += data; });
    server.port = await server.said(/http:\/\/127\.0\.0\.1:(\d+)/).then(found => Number(found[1]));
    server.url = `http://127.0.0.1:${server.port}`;
    await server.answers('/health', 60_000);
    return server;
  }

  // Waits until its standard error matches.
  async said(pattern, milliseconds = 60_000) {
    const end = Date.now() + milliseconds;
    for (;;) {
      const found = this.log.match(pattern);
      if (found) return found;
      if (Date.now() > end || this.process.exitCode !== null) throw new Error(`the server never said ${pattern}; it said:\n${this.log}`);
      await pause(20);
    }
  }

  async answers(path, milliseconds) {
    const end = Date.now() + milliseconds;
    while ((await fetch(this.url + path)).status !== 200) {
      if (Date.now() > end) throw new Error(`${path} is not ready; the server said:\n${this.log}`);
      await pause(50);
    }
  }

  // The sum of a metric's samples whose labels hold all of these texts: 'state="referenced"'.
  async metric(name, ...labels) {
    const text = await (await fetch(this.url + '/metrics')).text();
    let sum = 0, found = false;
    for (const line of text.split('\n')) {
      const match = line.match(/^([a-z_:]+)(\{.*\})? (\S+)$/);
      if (!match || match[1] !== name || !labels.every(label => (match[2] ?? '').includes(label))) continue;
      sum += Number(match[3]);
      found = true;
    }
    if (!found) throw new Error(`/metrics has no ${name} ${labels}`);
    return sum;
  }

  // Drains; its exit code.
  async stop() {
    this.process.kill('SIGTERM');
    return this.exited;
  }
}

export const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

// Resolves when `condition` does to true; what it waited for is in the message of a failure.
export async function eventually(what, condition, milliseconds = 10_000) {
  const end = Date.now() + milliseconds;
  while (!await condition()) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await pause(20);
  }
}
