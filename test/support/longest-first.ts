import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that wait or build for half a minute or more. */
const LONGEST = [
  'image/image',
  'faults/idle',
  'service/machine',
  'faults/resources',
  'faults/network',
  'faults/outage',
  'service/join-machine',
  'web/dashboard-views',
  'web/device-page',
  'web/device-page-content',
  'web/dashboard-lists',
  'agent/connectors/gateway-connector',
  'gateway/sessions/agent-session',
];

/** Starts the longest files first, beside each other: none is left to run alone at the end. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b));
  }
}

function rank({ moduleId }: TestSpecification): number {
  const at = LONGEST.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
  return at < 0 ? LONGEST.length : at;
}
