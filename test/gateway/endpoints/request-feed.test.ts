import { expect, it } from 'vitest';
import type { RequestReport } from '../../../src/agent-protocol/request-report.ts';
import { ReportQueue, RequestFeed } from '../../../src/gateway/endpoints/request-feed.ts';
import { until } from '../../support/until.ts';

const report = (target: string): RequestReport => ({
  at: 0,
  ms: 1,
  method: 'GET',
  host: 'cam.example.com',
  target,
  client: '203.0.113.7:1000',
  status: 200,
  code: null,
  sent: null,
  by: 'gateway',
  rules: [],
});
const SIZE = JSON.stringify(report('/1')).length + 1;

/** A reader that takes no more after each time. */
class Reader {
  readonly taken: string[] = [];
  held = 0;
  most = 0;

  take(lines: string): boolean {
    this.taken.push(lines);
    return false;
  }

  end(): void {}

  hold(bytes: number): void {
    this.held += bytes;
    this.most = Math.max(this.most, this.held);
  }

  /** Targets of the reports, and counts of those that are missing. */
  get targets(): unknown[] {
    const lines = this.taken.flatMap((text) => text.trimEnd().split('\n'));
    return lines.map((line) => JSON.parse(line)).map(({ dropped, target }) => dropped ?? target);
  }
}

it('reports arrive together and in order, and those that do not fit push out the oldest, which are counted', async () => {
  const reader = new Reader();
  const queue = new ReportQueue(reader, () => {}, 3 * SIZE);
  for (const target of ['/1', '/2', '/3', '/4', '/5']) queue.push(report(target));
  await until(() => reader.taken.length === 1, 'the first reports are there');
  expect(reader.targets).toEqual([2, '/3', '/4', '/5']);
  expect([reader.most, reader.held]).toEqual([3 * SIZE, 0]);
});

it('a reader that does not read gets nothing more until it does, whatever comes meanwhile', async () => {
  const reader = new Reader();
  const queue = new ReportQueue(reader, () => {}, 3 * SIZE);
  queue.push(report('/1'));
  await until(() => reader.taken.length === 1, 'the first report is there');
  for (let at = 2; at < 1_000; at++) queue.push(report('/2'));
  expect([reader.taken.length, reader.held]).toEqual([1, 3 * SIZE]);
  queue.resume();
  expect(reader.targets).toEqual(['/1', 995, '/2', '/2', '/2']);
});

it('a feed goes to all its readers until they end it, and frees what waits', () => {
  let isUnwatched = false;
  const feed = new RequestFeed(() => {
    isUnwatched = true;
  });
  const readers = [new Reader(), new Reader()];
  const queues = readers.map((reader) => feed.watch(reader));
  feed.publish(report('/1'));
  expect(readers.map(({ held }) => held)).toEqual([SIZE, SIZE]);
  queues[0]?.close();
  feed.publish(report('/2'));
  expect([isUnwatched, readers.map(({ held }) => held)]).toEqual([false, [0, 2 * SIZE]]);
  queues[1]?.close();
  expect([isUnwatched, readers.map(({ held }) => held)]).toEqual([true, [0, 0]]);
});

it('a feed reports so many requests at once, and counts those beyond', async () => {
  const reader = new Reader();
  const feed = new RequestFeed();
  feed.watch(reader);
  let admitted = 0;
  for (let count = 0; count < 10_000; count++) if (feed.admits()) admitted += 1;
  expect(admitted).toBeGreaterThanOrEqual(500);
  expect(admitted).toBeLessThan(5_000);
  await until(() => reader.taken.length === 1, 'the reader knows of the others');
  expect(reader.targets).toEqual([10_000 - admitted]);
});
