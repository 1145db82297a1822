import {
  headDigest,
  headSample,
  MAX_NAME,
  MAX_RULES,
  MAX_TARGET,
  type RequestReport,
} from '../../../agent-protocol/request-report.ts';
import { type ActedRule, RuleRecord } from '../../../traffic-policy/rule-record.ts';
import type { RequestFeed } from '../../endpoints/request-feed.ts';
import type { ClientConnection } from '../connections/connect-phase.ts';
import type { ClientResponse } from '../http/client-message.ts';
import { ERROR_CODE_HEADER } from '../http/error-response.ts';
import { headerValue } from '../http/headers.ts';

/** Without the empty line after it, as the agent reads it. */
const HEAD_END = 4;

/** A request as an endpoint's policy gets it. Another policy may have changed it before. */
interface WatchedRequest {
  readonly method: string;
  readonly target: string;
  readonly headers: readonly string[];
}

/** A request to an endpoint that somebody watches. It is reported once its response begins, or nothing will. */
export class RequestWatch {
  readonly record = new RuleRecord();
  readonly #at = Date.now();
  readonly #began = performance.now();
  readonly #seen: Pick<RequestReport, 'method' | 'host' | 'target'>;
  #sent: RequestReport['sent'] = null;
  #problem: string | null = null;
  #isForwarded = false;
  #isOver = false;

  constructor(
    private readonly feed: RequestFeed,
    { method, target, headers }: WatchedRequest,
    private readonly connection: ClientConnection,
  ) {
    const host = headerValue(headers, 'host') ?? '';
    this.#seen = { method: short(method), host: short(host), target: target.slice(0, MAX_TARGET) };
  }

  /** Reports the request with the head of its response, or when the client leaves before. */
  follow(res: ClientResponse): this {
    res.on('head', (status, headers) => this.answered(status, headerValue(headers, ERROR_CODE_HEADER) ?? null));
    res.on('close', () => this.#report(null, null, 'nobody'));
    return this;
  }

  sentUpstream(target: string, head: Buffer): void {
    const text = head.toString('latin1', 0, head.length - HEAD_END);
    this.#sent = { target: target.slice(0, MAX_TARGET), head: headDigest(text), sample: headSample(text) };
    this.#isForwarded = false;
  }

  forwarded(): void {
    this.#isForwarded = true;
  }

  /** The response is refused because of this, and an error page follows. */
  refused(problem: string): void {
    this.#problem = problem;
  }

  answered(status: number, code: string | null): void {
    if (this.#isOver) return;
    const ending = this.record.acted.at(-1)?.outcome.kind;
    if (code !== null || ending === 'answer' || ending === 'error') this.#report(status, code, 'gateway');
    else if (this.#isForwarded) this.#report(status, null, 'endpoint');
    else this.#report(status, null, this.#sent === null ? 'gateway' : 'upstream');
  }

  closed(): void {
    this.#report(null, null, 'gateway');
  }

  #report(status: number | null, code: string | null, by: RequestReport['by']): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { connection } = this;
    const acted = [...(connection.record?.acted ?? []), ...this.record.acted];
    this.feed.publish({
      at: this.#at,
      ms: Math.round((performance.now() - this.#began) * 100) / 100,
      ...this.#seen,
      client: connection.client,
      status,
      code,
      sent: this.#sent,
      by,
      ...(this.#problem !== null && { problem: short(this.#problem) }),
      rules: acted.slice(-MAX_RULES).map(reported),
    });
  }
}

const short = (text: string): string => text.slice(0, MAX_NAME);

function reported({ phase, place, name, actions, outcome }: ActedRule): RequestReport['rules'][number] {
  return { phase, place: short(place), name: name && short(name), actions: [...actions], outcome };
}
