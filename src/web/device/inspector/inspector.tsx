import { effect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { FeedTunnel } from '../../../agent/api/page/page-routes.ts';
import { ButtonLink } from '../../ui/button.tsx';
import { BackIcon } from '../../ui/icons.tsx';
import { keepInAddress, queryInAddress, route } from '../../ui/router.ts';
import { InspectionSwitch } from './inspection-switch.tsx';
import { RequestDialog } from './request-dialog.tsx';
import { RequestFilters } from './request-filters.tsx';
import { RequestList } from './request-list.tsx';
import { filterOf, openTraffic, queryOf } from './traffic-model.ts';
import './inspector.css';

export interface InspectorProps {
  tunnel: FeedTunnel;
  /** The request that is shown, if any. */
  requestId: string | undefined;
  /** Whether it is edited, to be sent again. */
  isEditing: boolean;
}

/** The requests of a tunnel: lists them as they come, and shows each in detail. */
export function Inspector({ tunnel, requestId, isEditing }: InspectorProps): JSX.Element {
  const [model] = useState(() => openTraffic(tunnel.url));
  /** The query of the filter that is shown. */
  const shown = useRef(queryOf(model.filter.peek()).toString());
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    // The link that led here has left the page, and the focus with it.
    if (requestId === undefined) heading.current?.focus();
    return () => model.connection.close();
  }, [model]);
  // At once, not with the next paint: a reload in between would lose the filter.
  const keepFilter = () => {
    // A link to another view of the tunnel has no query; a link from elsewhere, and the history, may have another one.
    route.value;
    const given = queryInAddress();
    const { value } = model.filter;
    if (given.size > 0 && given.toString() !== shown.current) model.filter.value = filterOf(given);
    else keepInAddress(queryOf(value));
    shown.current = queryOf(model.filter.peek()).toString();
  };
  useEffect(() => effect(keepFilter), [model]);
  const report = model.inspection.value;
  return (
    <section aria-labelledby="traffic" class="inspector">
      <div class="inspector-head">
        <ButtonLink kind="quiet" href="#/">
          <BackIcon />
          All tunnels
        </ButtonLink>
        <h2 id="traffic" ref={heading} tabindex={-1}>
          Traffic of {tunnel.url_part}
        </h2>
      </div>
      <InspectionSwitch model={model} />
      {report?.requests !== 0 && <RequestFilters filter={model.filter} />}
      <RequestList model={model} tunnel={tunnel} />
      <p class="hint">
        Shows requests that reach the upstream, with headers and bodies. They stay in the memory of the agent and are
        never written to disk.{' '}
        {report?.gateway_reports === 'unavailable' &&
          'The gateway does not report which rules of the traffic policy act: requests that a rule answers do not appear here.'}{' '}
        {report !== null &&
          report.gateway_missed > 0 &&
          `The gateway has not reported ${report.gateway_missed.toLocaleString('en')} requests: too many came at a time.`}
      </p>
      {requestId !== undefined && (
        <RequestDialog key={String(isEditing)} model={model} tunnel={tunnel} id={requestId} isEditing={isEditing} />
      )}
    </section>
  );
}
