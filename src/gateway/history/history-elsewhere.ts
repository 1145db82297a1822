import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import type { HistoryFile, Run } from './history-file.ts';
import type { HistoryPart, HistoryRange, SubjectName } from './history-points.ts';
import { Values } from './history-values.ts';
import type { SharedHistory } from './shared-history.ts';

/** What one gateway asks another one. */
export interface HistoryQuestion {
  readonly of: SubjectName;
  readonly range: HistoryRange;
}

/** How it is sent: numbers are arrays there. */
interface SentPart {
  readonly begun: number;
  readonly rows: readonly (readonly [at: number, numbers: readonly number[], refusals: Values['refusals']])[];
  readonly runs: readonly Run[];
  readonly known: readonly Run[];
}

/** The answer to {@link HistoryQuestion}. @param begun when the file begins, in minutes */
export function partText({ rows, runs, known }: HistoryPart, begun: number): string {
  const sent: SentPart = {
    begun,
    rows: rows.map(({ at, values }) => [at, [...values.numbers], values.refusals]),
    runs,
    known,
  };
  return JSON.stringify(sent);
}

/** Histories of the other gateways of a shared database: those that answer have the latest, of the others it has what is complete. */
export class HistoryElsewhere {
  readonly #failures = new Repeats();

  constructor(
    private readonly shared: SharedHistory,
    /** Asks the other gateways; those that do not answer are left out. */
    private readonly askAll: (question: string) => Promise<ReadonlyMap<string, string>>,
    /** What this gateway is called, and when its own file begins. */
    private readonly self: { readonly node: string; readonly begun: () => number },
    private readonly log: Log,
  ) {}

  /** Passes on what is complete; what cannot be now, is later. */
  async take(file: HistoryFile): Promise<void> {
    try {
      await this.shared.take(file);
    } catch (error) {
      const times = this.#failures.timesDue('take');
      if (times !== null)
        this.log.warn({ times, reason: messageOf(error) }, 'history not written to the shared database');
    }
  }

  async read(of: SubjectName, range: HistoryRange): Promise<HistoryPart[]> {
    const answers = await this.askAll(JSON.stringify({ of, range } satisfies HistoryQuestion));
    const asked = new Map([[this.self.node, this.self.begun()]]);
    const parts = [...answers].map(([node, text]) => {
      const { begun, rows, runs, known } = JSON.parse(text) as SentPart;
      asked.set(node, begun);
      return { rows: rows.map(([at, ...values]) => ({ at, values: Values.of(...values) })), runs, known };
    });
    try {
      return [...parts, await this.shared.part(of, range, asked)];
    } catch (error) {
      const times = this.#failures.timesDue('read');
      if (times !== null)
        this.log.warn({ times, reason: messageOf(error) }, 'history of silent gateways cannot be read');
      return parts;
    }
  }
}
