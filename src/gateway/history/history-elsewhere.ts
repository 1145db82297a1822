import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import type { HistoryFile } from './history-file.ts';
import type { HistoryPart, HistoryRange, SubjectName } from './history-points.ts';
import { Values } from './history-values.ts';
import type { SharedHistory } from './shared-history.ts';
import type { TopCounts } from './top-lists.ts';

/** What one gateway asks another one. */
export interface HistoryQuestion {
  readonly of: readonly SubjectName[];
  readonly range: HistoryRange;
  /** Whether it wants requests alone of what was counted. */
  readonly isBrief: boolean;
  /** The URL of an endpoint whose top lists are wanted, and nothing else. */
  readonly top?: string;
}

/** How it is sent: numbers are arrays there. */
interface SentPart extends Omit<HistoryPart, 'rows' | 'away'> {
  readonly away?: HistoryPart['away'];
  readonly rows: readonly (readonly [at: number, numbers: readonly number[], tallies: Values['tallies']])[];
}

interface SentHistory {
  readonly begun: number;
  readonly parts: readonly SentPart[];
  readonly top?: readonly TopCounts[];
}

/** The answer to {@link HistoryQuestion}, in its order. @param begun when the file begins, in minutes */
export function partsText(parts: readonly HistoryPart[], begun: number, top: readonly TopCounts[] = []): string {
  const sent = parts.map(({ rows, ...part }) => ({
    ...part,
    rows: rows.map(({ at, values }) => [at, [...values.numbers], values.tallies] as const),
  }));
  return JSON.stringify({ begun, parts: sent, top } satisfies SentHistory);
}

/** Histories of the other gateways of a shared database: those that answer have the latest, of the others it has what is complete. */
export class HistoryElsewhere {
  readonly #failures = new Repeats();
  #isTaking = false;

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
    // After a day without the database, it takes longer than a minute.
    if (this.#isTaking) return;
    this.#isTaking = true;
    try {
      await this.shared.take(file);
    } catch (error) {
      const times = this.#failures.timesDue('take');
      if (times !== null)
        this.log.warn({ times, reason: messageOf(error) }, 'history not written to the shared database');
    } finally {
      this.#isTaking = false;
    }
  }

  async read(of: SubjectName, range: HistoryRange): Promise<HistoryPart[]> {
    const answers = await this.#ask({ of: [of], range, isBrief: false });
    const parts = answers.flatMap((answer) => answer.parts);
    const silent = await this.#ofSilent((asked) => this.shared.part(of, range, asked), answers);
    return silent === null ? parts : [...parts, silent];
  }

  /** What the other gateways have of many, in the same order. */
  async readBriefly(question: HistoryQuestion): Promise<HistoryPart[][]> {
    const { of, range } = question;
    const answers = await this.#ask(question);
    const silent = await this.#ofSilent((asked) => this.shared.briefParts(of, range, asked), answers);
    return of.map((_, place) => [
      ...answers.flatMap(({ parts }) => parts[place] ?? []),
      ...(silent?.slice(place, place + 1) ?? []),
    ]);
  }

  /** What the others have counted at an endpoint since somebody looks. */
  async top(url: string): Promise<TopCounts[]> {
    const range = { from: 0, to: 0, step: 1 };
    return (await this.#ask({ of: [], range, isBrief: true, top: url })).flatMap(({ top }) => top);
  }

  /** What those have that do not answer. @param read gets when the files begin of those that do @returns null: it cannot be read */
  async #ofSilent<T>(
    read: (asked: ReadonlyMap<string, number>) => Promise<T>,
    answers: readonly { readonly node: string; readonly begun: number }[],
  ): Promise<T | null> {
    const asked = new Map([[this.self.node, this.self.begun()]]);
    for (const { node, begun } of answers) asked.set(node, begun);
    try {
      return await read(asked);
    } catch (error) {
      const times = this.#failures.timesDue('read');
      if (times !== null)
        this.log.warn({ times, reason: messageOf(error) }, 'history of silent gateways cannot be read');
      return null;
    }
  }

  async #ask(question: HistoryQuestion) {
    const answers = await this.askAll(JSON.stringify(question));
    return [...answers].map(([node, text]) => {
      const { begun, parts, top = [] } = JSON.parse(text) as SentHistory;
      return { node, begun, parts: parts.map(readPart), top };
    });
  }
}

function readPart({ rows, ...part }: SentPart): HistoryPart {
  // Gateways of earlier versions leave it out.
  return {
    ...part,
    away: part.away ?? [],
    rows: rows.map(([at, ...values]) => ({ at, values: Values.of(...values) })),
  };
}
