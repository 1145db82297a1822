import type { Reporter, TestCase, TestModule, TestSuite, Vitest } from 'vitest/node';

/** Ends a run with one line that counts the skipped tests by reason. */
export class SkippedReporter implements Reporter {
  #vitest: Vitest | null = null;

  onInit(vitest: Vitest): void {
    this.#vitest = vitest;
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    const reasons = new Map<string, number>();
    for (const module of modules) {
      for (const test of module.children.allTests('skipped')) {
        const reason = missingFor(test) ?? this.#otherReason(test);
        reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
      }
    }
    const total = [...reasons.values()].reduce((sum, count) => sum + count, 0);
    const counts = [...reasons].sort(([, a], [, b]) => b - a).map(([reason, count]) => `${count}: ${reason}`);
    this.#vitest?.logger.log(total === 0 ? 'Skipped: none' : `Skipped: ${total} (${counts.join('; ')})`);
  }

  #otherReason(test: TestCase): string {
    const result = test.result();
    const note = result.state === 'skipped' ? result.note : undefined;
    if (note !== undefined) return note;
    return this.#vitest?.getGlobalTestNamePattern() === undefined ? 'no reason given' : 'not selected';
  }
}

function missingFor(test: TestCase): string | undefined {
  let at: TestCase | TestSuite | TestModule = test;
  while (at.type !== 'module') {
    const { missing } = at.meta();
    if (missing !== undefined) return missing;
    at = at.parent;
  }
  return undefined;
}
