import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { MessageReport } from '../../../agent/api/inspection/inspection-reports.ts';
import { type ApiProblem, call } from '../../ui/api.ts';
import { byteSize } from '../../ui/byte-size.ts';
import { Badge, ProblemNotice } from '../../ui/notice.tsx';
import { attempt } from '../../ui/submission.ts';

const TYPES = { text: '', binary: 'binary', close: 'close', event: '' } as const;
const SENDERS = { client: 'Client', upstream: 'Upstream' } as const;

/** As many as the agent keeps. */
const MAX_SHOWN = 1_000;

/**
 * The messages of a WebSocket, or server-sent events, as they come; newest first.
 *
 * @param count of messages so far: more are fetched when it grows
 */
export function MessageList({
  path,
  count,
  revealed,
}: {
  path: string;
  count: number;
  revealed: boolean;
}): JSX.Element {
  const messages = useSignal<readonly MessageReport[]>([]);
  const problem = useSignal<ApiProblem | null>(null);
  /** Only one request at a time, so that none of them is shown twice. */
  const current = useRef<Promise<void>>(Promise.resolve());
  const shownRevealed = useRef(revealed);
  useEffect(() => {
    current.current = current.current.then(async () => {
      if (shownRevealed.current !== revealed) messages.value = [];
      shownRevealed.current = revealed;
      const last = messages.value[0]?.number ?? 0;
      if (last >= count) return;
      const query = new URLSearchParams({ after: String(last), ...(revealed && { reveal: 'true' }) });
      await attempt(problem, async () => {
        const more = await call<MessageReport[]>('GET', `${path}?${query}`);
        messages.value = [...more.toReversed(), ...messages.value].slice(0, MAX_SHOWN);
      });
    });
  }, [count, revealed]);
  const { value: shown } = messages;
  const oldest = shown.at(-1)?.number ?? 1;
  return (
    <section class="exchange" aria-labelledby="messages">
      <h3 id="messages">Messages</h3>
      {problem.value && <ProblemNotice title="The request could not be loaded" problem={problem.value} />}
      {shown.length === 0 && <p class="hint">None so far.</p>}
      <ol class="messages" tabindex={0} aria-labelledby="messages">
        {shown.map((message) => (
          <Message key={message.number} message={message} />
        ))}
      </ol>
      {oldest > 1 && <p class="hint">Only the newest are kept.</p>}
    </section>
  );
}

function Message({ message }: { message: MessageReport }): JSX.Element {
  const { from, type, at, bytes, truncated, text: content, base64, event, error } = message;
  const facts = [event, TYPES[type], byteSize(bytes), truncated && 'beginning only', error].filter(Boolean);
  return (
    <li>
      <Badge tone={from === 'client' ? 'neutral' : 'busy'}>{SENDERS[from]}</Badge>
      <time datetime={at}>{new Date(at).toLocaleTimeString('en-GB')}</time>
      <span class="hint">{facts.join(' · ')}</span>
      <pre>{content ?? base64 ?? ''}</pre>
    </li>
  );
}
