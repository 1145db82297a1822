import type { Store } from '../../src/gateway/store/store.ts';

const FACTS = {
  subject_common_name: 'test',
  issuer_common_name: 'test',
  subject_alternative_names: { dns_names: [], ips: [] },
  not_before: '2025-09-04T10:11:14Z',
  not_after: '2025-12-03T10:11:14Z',
  key_usages: [],
  extended_key_usages: [],
  private_key_type: 'rsa',
  serial_number: '01',
  subject_organization: '',
  subject_organizational_unit: '',
  subject_locality: '',
  subject_province: '',
  subject_country: '',
};

/** Stores a certificate and attaches it to the domain, like a finished job. */
export async function storeCertificate(store: Store, domainId: string): Promise<void> {
  await store.database.write(() => {
    const row = store.reservedDomains.get(domainId);
    if (!row) throw new Error(`no domain ${domainId}`);
    const now = store.now();
    const certificate = {
      id: store.ids.next('cert'),
      created_at: now,
      description: null,
      metadata: null,
      certificate_pem: 'certificate',
      facts: FACTS,
      issued_at: now,
    };
    store.tlsCertificates.insertWithKey(certificate, 'key');
    store.reservedDomains.update({ ...row, certificate_id: certificate.id, job: null, due_at: null });
  });
}

/** Makes the domain's job fail with missing DNS records. */
export async function failForDns(store: Store, domainId: string): Promise<void> {
  await store.database.write(() => {
    const row = store.reservedDomains.get(domainId);
    if (!row?.job) throw new Error(`domain ${domainId} has no job`);
    const retriesAt = '2099-01-01T00:00:00Z';
    const job = { ...row.job, error_code: 'DNS_ERROR' as const, msg: 'No CNAME record.', retries_at: retriesAt };
    store.reservedDomains.update({ ...row, job, due_at: retriesAt });
  });
}
