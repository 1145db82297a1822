import type { Signal } from '@preact/signals';
import type { JSX } from 'preact';
import type { RequestDetail } from '../../../agent/api/inspection/inspection-reports.ts';
import { curlCommand, outcomeText, ruleTitle, verdictText } from '../../../agent/api/inspection/shown-requests.ts';
import type { FeedTunnel } from '../../../agent/api/page/page-routes.ts';
import { besidePage } from '../../ui/api.ts';
import { Button, ButtonLink, CopyButton } from '../../ui/button.tsx';
import { byteSize } from '../../ui/byte-size.ts';
import { ProblemNotice } from '../../ui/notice.tsx';
import { linkTo } from '../../ui/router.ts';
import { useSubmission } from '../../ui/submission.ts';
import { BodyView } from './body-view.tsx';
import { MessageList } from './message-list.tsx';
import { replay } from './replay-form.tsx';
import { StatusBadge, tookText } from './request-list.tsx';
import type { TrafficModel } from './traffic-model.ts';

const MAX_TITLE = 60;

export interface RequestViewProps {
  model: TrafficModel;
  tunnel: FeedTunnel;
  detail: RequestDetail;
  /** Whether secrets are shown. */
  revealed: Signal<boolean>;
}

/** All that is known of a request and its response. */
export function RequestView({ model, tunnel, detail, revealed }: RequestViewProps): JSX.Element {
  return (
    <>
      {detail.path.length > MAX_TITLE && <LongPath path={detail.path} />}
      {detail.error !== null && <p class="reason">{detail.error}</p>}
      <Actions model={model} tunnel={tunnel} detail={detail} revealed={revealed} />
      <Facts detail={detail} tunnelId={tunnel.id} />
      <RulesView detail={detail} />
      {detail.captured ? (
        <Captured model={model} detail={detail} revealed={revealed} />
      ) : (
        <p class="hint">The request did not reach the agent. It has only what the gateway reports.</p>
      )}
    </>
  );
}

/** What passed between the agent and the upstream. */
function Captured({ model, detail, revealed }: Omit<RequestViewProps, 'tunnel'>): JSX.Element {
  const { id, request, response, messages, kind } = detail;
  const bodyAt = (part: string) =>
    besidePage(`${model.path}/requests/${encodeURIComponent(id)}/${part}/body${revealed.value ? '?reveal=true' : ''}`);
  return (
    <>
      <section class="exchange" aria-labelledby="request">
        <h3 id="request">Request</h3>
        <Headers message={request} />
        {request.body === null ? (
          <p class="hint">No body.</p>
        ) : (
          <BodyView body={request.body} href={bodyAt('request')} />
        )}
      </section>
      <section class="exchange" aria-labelledby="response">
        <h3 id="response">Response {response && `${detail.status} ${response.status_text}`}</h3>
        {response === null && (
          <p class="hint">{detail.state === 'open' ? 'No response yet.' : 'There was no response.'}</p>
        )}
        {response && <Headers message={response} />}
        {response?.body && (kind !== 'events' || messages === 0) && (
          <BodyView body={response.body} href={bodyAt('response')} />
        )}
      </section>
      {(messages > 0 || kind === 'websocket' || kind === 'events') && (
        <MessageList
          path={`${model.path}/requests/${encodeURIComponent(id)}/messages`}
          count={messages}
          revealed={revealed.value}
        />
      )}
    </>
  );
}

/** The title of the dialog does not show all of it. */
function LongPath({ path }: { path: string }): JSX.Element {
  return (
    <pre class="long-path" tabindex={0}>
      {path}
    </pre>
  );
}

function Facts({ detail, tunnelId }: { detail: RequestDetail; tunnelId: string }): JSX.Element {
  const { timing, replay_of: original } = detail;
  const timings: [string, number | null][] = [
    ['Request sent', timing.sending_ms],
    ['Waited for the response', timing.waiting_ms],
    ['Response received', timing.receiving_ms],
  ];
  return (
    <dl class="facts request-details">
      <div>
        <dt>Status</dt>
        <dd>
          <StatusBadge request={detail} />
        </dd>
      </div>
      <div>
        <dt>Received</dt>
        <dd>
          <time datetime={detail.started_at}>{new Date(detail.started_at).toLocaleTimeString('en-GB')}</time>
        </dd>
      </div>
      <div>
        <dt>Client</dt>
        <dd>{detail.client ?? 'unknown'}</dd>
      </div>
      <div>
        <dt>Size</dt>
        <dd>
          {byteSize(detail.request_bytes)} in, {byteSize(detail.response_bytes)} out
        </dd>
      </div>
      <div>
        <dt>Duration</dt>
        <dd>{tookText(detail.duration_ms)}</dd>
      </div>
      {timings.map(
        ([name, ms]) =>
          ms !== null && (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{tookText(ms)}</dd>
            </div>
          ),
      )}
      {original !== null && (
        <div>
          <dt>Replay of</dt>
          <dd>
            <a href={linkTo('tunnels', tunnelId, 'traffic', original)}>request {original}</a>
          </dd>
        </div>
      )}
    </dl>
  );
}

function Actions({ model, tunnel, detail, revealed }: RequestViewProps): JSX.Element {
  const { busy, problem, run } = useSubmission();
  const isHttp = detail.captured && (detail.kind === 'http' || detail.kind === 'events');
  return (
    <>
      <div class="request-actions">
        {detail.replayable && (
          <Button busy={busy} onClick={() => void run(() => replay(model, tunnel.id, detail.id, {}))}>
            Replay
          </Button>
        )}
        {isHttp && (
          <ButtonLink href={linkTo('tunnels', tunnel.id, 'traffic', detail.id, 'edit')}>Edit and replay</ButtonLink>
        )}
        {isHttp && (
          <CopyButton text={curlCommand(detail, tunnel.url, model.ca)} what="curl">
            Copy as curl
          </CopyButton>
        )}
        {(detail.masked || revealed.value) && (
          <Button
            onClick={() => {
              revealed.value = !revealed.value;
            }}
          >
            {revealed.value ? 'Mask secrets' : 'Reveal secrets'}
          </Button>
        )}
      </div>
      {problem && <ProblemNotice title="The request was not replayed" problem={problem} />}
    </>
  );
}

type Message = Pick<RequestDetail['request'], 'headers' | 'trailers'>;

function Headers({ message: { headers, trailers } }: { message: Message }): JSX.Element {
  return (
    <>
      <details open>
        <summary>{headers.length === 1 ? '1 header' : `${headers.length} headers`}</summary>
        <Pairs pairs={headers} />
      </details>
      {trailers.length > 0 && (
        <details open>
          <summary>Trailers</summary>
          <Pairs pairs={trailers} />
        </details>
      )}
    </>
  );
}

function Pairs({ pairs }: { pairs: Message['headers'] }): JSX.Element {
  return (
    <dl class="pairs">
      {pairs.map(({ name, value }, at) => (
        <div key={at}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Which rules of the traffic policy acted, and who answered; nothing while the gateway has not reported it. */
function RulesView({ detail }: { detail: RequestDetail }): JSX.Element | null {
  const { gateway } = detail;
  if (gateway === null) return null;
  const { path, upstream_path: upstreamPath, rules } = gateway;
  const verdict = verdictText(detail);
  return (
    <section class="exchange" aria-labelledby="gateway">
      <h3 id="gateway">Traffic policy</h3>
      {verdict !== null && <p class="verdict">{verdict}</p>}
      {rules.length === 0 && verdict === null && <p class="hint">No rule acted.</p>}
      {rules.length > 0 && (
        <ol class="rules">
          {rules.map((rule, at) => (
            <li key={at}>
              <span>{ruleTitle(rule)}</span> <code>{rule.actions.join(', ')}</code> <em>{outcomeText(rule)}</em>
            </li>
          ))}
        </ol>
      )}
      {upstreamPath !== null && upstreamPath !== path && (
        <dl class="pairs">
          <div>
            <dt>Path the client asked for</dt>
            <dd>{path}</dd>
          </div>
        </dl>
      )}
    </section>
  );
}
