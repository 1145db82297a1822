import type { ReservedDomainRow } from '../../src/gateway/store/domains.ts';
import type { Store } from '../../src/gateway/store/store.ts';

/** A reserved domain without a certificate, to be stored. */
export function domainRow(store: Store, domain: string, description: string | null): ReservedDomainRow {
  return {
    id: store.ids.next('rd'),
    created_at: store.now(),
    description,
    metadata: null,
    domain,
    certificate_id: null,
    http_endpoint_configuration_id: null,
    https_endpoint_configuration_id: null,
    policy: null,
    renews_at: null,
    job: null,
    due_at: null,
  };
}
