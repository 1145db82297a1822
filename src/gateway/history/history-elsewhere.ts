import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import type { HistoryFile } from './history-file.ts';
import type { HistoryPart, HistoryRange, SubjectName } from './history-points.ts';
import { Values } from './history-values.ts';
import type { SharedHistory } from './shared-history.ts';

/** What one gateway asks another one. */
export interface HistoryQuestion {
  readonly of: readonly SubjectName[];
  readonly range: HistoryRange;
  /** Whether it wants requests alone of what was counted. */
  readonly isBrief: boolean;
}

/** How it is sent: numbers are arrays there. */
interface SentPart extends Omit<HistoryPart, 'rows'> {
  readonly rows: readonly (readonly [at: number, numbers: readonly number[], refusals: Values['refusals']])[];
}

interface SentHistory {
  readonly begun: number;
  readonly parts: readonly SentPart[];
}

/** The answer to {@link HistoryQuestion}, in its order. @param begun when the file begins, in minutes */
export function partsText(parts: readonly HistoryPart[], begun: number): string {
  const sent = parts.map(({ rows, ...part }) => ({
    ...part,
    rows: rows.map(({ at, values }) => [at, [...values.numbers], values.refusals] as const),
  }));
  return JSON.stringify({ begun, parts: sent } satisfies SentHistory);
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
    const answers = await this.#ask({ of: [of], range, isBrief: false });
    const asked = new Map([[this.self.node, this.self.begun()]]);
    for (const { node, begun } of answers) asked.set(node, begun);
    const parts = answers.flatMap((answer) => answer.parts);
    try {
      return [...parts, await this.shared.part(of, range, asked)];
    } catch (error) {
      const times = this.#failures.timesDue('read');
      if (times !== null)
        this.log.warn({ times, reason: messageOf(error) }, 'history of silent gateways cannot be read');
      return parts;
    }
  }

  /** What the gateways that answer have of many, in the same order: lists do without what silent ones had. */
  async readBriefly(question: HistoryQuestion): Promise<HistoryPart[][]> {
    const answers = await this.#ask(question);
    return question.of.map((_, place) => answers.flatMap(({ parts }) => parts[place] ?? []));
  }

  async #ask(question: HistoryQuestion) {
    const answers = await this.askAll(JSON.stringify(question));
    return [...answers].map(([node, text]) => {
      const { begun, parts } = JSON.parse(text) as SentHistory;
      return { node, begun, parts: parts.map(readPart) };
    });
  }
}

function readPart({ rows, ...part }: SentPart): HistoryPart {
  return { ...part, rows: rows.map(([at, ...values]) => ({ at, values: Values.of(...values) })) };
}
