import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { Endpoint } from '../../../management/resources/endpoint.ts';
import type { TopRequests as Answer } from '../../../management/resources/history.ts';
import type { ApiProblem } from '../../ui/api.ts';
import { Button } from '../../ui/button.tsx';
import { ProblemNotice } from '../../ui/notice.tsx';
import { attempt } from '../../ui/submission.ts';
import { api } from '../session.ts';
import { clockTime } from './history-model.ts';

const REFRESH_MS = 5_000;
const LISTS = [
  { name: 'paths', label: 'Path' },
  { name: 'client_networks', label: 'Client network' },
  { name: 'statuses', label: 'Status' },
] as const;

/** What requests to an endpoint have most. The gateway counts it only while this is open. */
export function MostFrequent({ url }: { url: string }): JSX.Element {
  const isOpen = useSignal(false);
  return (
    <section class="part" aria-labelledby="top-requests">
      <div class="section-head">
        <h3 id="top-requests">Top requests of the last hour</h3>
        <Button
          onClick={() => {
            isOpen.value = !isOpen.value;
          }}
        >
          {isOpen.value ? 'Stop counting' : 'Count them'}
        </Button>
      </div>
      {isOpen.value ? (
        <Lists url={url} />
      ) : (
        <p class="hint">Paths, client networks and statuses are counted only while somebody looks.</p>
      )}
    </section>
  );
}

function Lists({ url }: { url: string }): JSX.Element {
  const top = useSignal<Answer | null>(null);
  const isOnline = useSignal(true);
  const problem = useSignal<ApiProblem | null>(null);
  useEffect(() => {
    const load = () =>
      attempt(problem, async () => {
        const { endpoints } = await api<{ endpoints: Endpoint[] }>(
          'GET',
          `/endpoints?${new URLSearchParams({ search: url })}`,
        );
        const id = endpoints.find((each) => each.url === url)?.id;
        isOnline.value = id !== undefined;
        if (id !== undefined) top.value = await api<Answer>('GET', `/endpoints/${id}/top_requests`);
      });
    void load();
    const timer = setInterval(() => !document.hidden && void load(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [url]);
  const shown = top.value;
  return (
    <>
      {problem.value && <ProblemNotice title="The top requests could not be loaded" problem={problem.value} />}
      {!isOnline.value && <p>The endpoint is offline.</p>}
      {shown && (
        <>
          <p class="hint">
            {shown.requests.toLocaleString('en')} requests since {clockTime(Date.parse(shown.since))}
            {shown.not_looked_at > 0 && `, of which the lists lack ${shown.not_looked_at.toLocaleString('en')}`}.
          </p>
          <div class="tops">
            {LISTS.map(({ name, label }) => (
              <div key={name} class="card numbers">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">{label}</th>
                      <th scope="col">Requests</th>
                    </tr>
                  </thead>
                  <tbody>
                    {shown[name].map(({ value, requests, at_least }) => (
                      <tr key={value}>
                        <th scope="row">{value}</th>
                        <td>
                          {requests > at_least && 'up to '}
                          {requests.toLocaleString('en')}
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            ))}
          </div>
        </>
      )}
    </>
  );
}
