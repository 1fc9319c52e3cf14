/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * internal.h - the structures that the files of this folder share, and what each file offers
 * to the others.  The essay in index.c says how they work together, and the lock order.
 */
#ifndef FOLDFS_INDEX_INTERNAL_H
#define FOLDFS_INDEX_INTERNAL_H

#include <string.h>
#include <sys/types.h>

#include <xxhash.h>
/* Without memory the hash table refuses the entry instead of ending the process. */
#define HASH_NONFATAL_OOM            1
#define HASH_FUNCTION(p, len, ret)   (ret) = (unsigned)XXH3_64bits((p), (len))
#define uthash_nonfatal_oom(element) ((element)->refused = true)
#include <uthash.h>

#include "index/format.h"
#include "index/index.h"

#define NS_PER_S INT64_C(1000000000)

#define CACHE_LINE 64

/* ---- map.c: files mapped for good ---- */

/* SIZE bytes are allocated and may be touched; SPAN bytes of address space are mapped, so that
 * the file can grow without moving. */
struct map {
    int fd;
    char *base;
    uint64_t span;
    _Atomic uint64_t size;
};

/* Makes file NAME in DIRFD, or one without a name in memory if DIRFD is negative. */
int map_create(int dirfd, const char *name, uint64_t size, uint64_t span, struct map *ret_map);
/* Opens one that was made so; SPAN is at least its size. */
int map_open(int dirfd, const char *name, uint64_t span, struct map *ret_map);
int map_grow(struct map *map, uint64_t size);
int map_sync(const struct map *map);
void map_close(struct map *map);
/* A new file of SIZE allocated bytes; its descriptor or a negative errno. */
int file_create(int dirfd, const char *name, uint64_t size);
/* Blocks allocated to FD, in bytes. */
uint64_t file_bytes(int fd);
/* Reads or writes all LEN bytes at OFFSET; a short read is -EUCLEAN. */
int read_at(int fd, void *buffer, size_t len, uint64_t offset);
int write_at(int fd, const void *buffer, size_t len, uint64_t offset);

/* ---- cold.c: the file `dirs` ---- */

struct cold {
    pthread_mutex_t lock;
    int dirfd; /* negative: in memory */
    int fd;
    uint64_t seed;
    struct file_header header;
    uint64_t slots;    /* entries there is room for */
    uint64_t taken;    /* entries that are not free */
    uint64_t complete; /* entries of kind ENTRY_PROVEN */
};

int cold_create(int dirfd, const struct file_header *proto, uint64_t seed, uint64_t slots,
                struct cold *ret_cold);
int cold_open(int dirfd, const struct file_header *proto, uint64_t seed, struct cold *ret_cold);
void cold_close(struct cold *cold);
/* 0, -ENOENT, or another negative errno. */
int cold_get(struct cold *cold, const uint8_t id[16], struct dirs_entry *ret_entry);
/* Stores ENTRY (its check is filled in) in place of the one with its id. */
int cold_put(struct cold *cold, const struct dirs_entry *entry);
/* Makes durable what was put. */
int cold_sync(struct cold *cold);
/* Calls FN for each valid entry; stops at the first result that is not 0 and returns it. */
typedef int (*cold_fn)(void *ctx, const struct dirs_entry *entry);
int cold_for_each(struct cold *cold, cold_fn fn, void *ctx);
/* 0 or -EUCLEAN with what was wrong in the log. */
int cold_verify(struct cold *cold);
/* How many entries are proven; adds the bytes of the file to *BYTES. */
void cold_info(struct cold *cold, uint64_t *ret_complete, uint64_t *bytes);

/* ---- a generation: names, table, dirs ---- */

struct gen {
    uint64_t number;
    uint64_t seed;
    int dirfd; /* of its folder; negative: in memory */
    struct file_header proto;
    struct map names;
    struct map table;
    struct cold dirs;
    uint64_t nbuckets;
    struct bucket *buckets;
    pthread_mutex_t grow_lock;
    _Atomic uint64_t tail; /* where the next record goes */
    _Atomic uint64_t used; /* slots */
    _Atomic uint64_t variants;
    _Atomic uint64_t garbage_records;
    _Atomic uint64_t garbage_bytes;
    /* Entries that an earlier run wrote with a larger epoch are not backed by these files. */
    uint64_t synced;
    _Atomic bool overflow; /* an update found no room */
    _Atomic bool damaged;  /* something invalid was met */
};

/* gen.c */
int gen_create(int parent_fd, const struct manifest *m, uint64_t number, uint64_t nbuckets,
               uint64_t names_span, struct gen **ret_gen);
/* HISTORY tells whether the files may be a mixture of ages. */
enum history { HISTORY_WHOLE, HISTORY_POWER_LOSS };
int gen_open(int parent_fd, const struct manifest *m, enum history history,
             struct gen **ret_gen);
void gen_free(struct gen *gen);
void gen_folder_name(uint64_t number, char ret_name[32]);
/* Writes tail and counters into the headers. */
void gen_save_counters(struct gen *gen);
/* Makes names and table durable as of the checkpoint with number EPOCH. */
int gen_sync(struct gen *gen, uint64_t epoch);
/* May ENTRY of GEN's dirs be proven?  Not if names or table are older files than dirs. */
static inline bool gen_backs(const struct gen *gen, const struct dirs_entry *entry,
                             uint64_t run_start)
{
    return entry->epoch >= run_start || entry->epoch <= gen->synced;
}
void header_seal(struct file_header *header);
bool header_valid(const struct file_header *header, const struct file_header *proto);
/* Removes the folder of a generation and all files in it. */
void gen_remove_folder(int parent_fd, const char *name);

static inline uint64_t gen_slots(const struct gen *gen)
{
    return gen->nbuckets * SLOTS_PER_BUCKET;
}

/* ---- arena.c: records ---- */

struct view_of_record {
    struct record *record;
    uint64_t offset;
    uint64_t key;
    const char *name;
    uint8_t len;
    unsigned type;
    unsigned levels;
};

/* Looks at the record at OFFSET; false if there is no undamaged one. */
bool record_view(const struct gen *gen, uint64_t offset, struct view_of_record *ret_view);
/* Makes sure that bytes of the arena up to END are allocated.  0, -ENOSPC or another errno. */
int arena_grow_to(struct gen *gen, uint64_t end);
/* Appends a record that nothing leads to yet.  0 or -ENOSPC. */
int record_append(struct gen *gen, uint64_t key, unsigned type, unsigned levels,
                  const char *name, size_t len, uint64_t number_and_removed,
                  uint64_t *ret_offset);

static inline uint8_t record_salt(const struct gen *gen, uint64_t offset, unsigned word)
{
    return word_salt(gen->seed, offset + 8 * word);
}

static inline uint64_t record_state_make(const struct gen *gen, uint64_t offset,
                                         uint64_t number_and_removed)
{
    return word_make(number_and_removed | state_check(gen->seed, offset, number_and_removed),
                     record_salt(gen, offset, 0));
}

/* Stores {number, removed} into a record. */
static inline void record_set_state(const struct gen *gen, const struct view_of_record *v,
                                    uint64_t number_and_removed)
{
    atomic_store_explicit(&v->record->state,
                          record_state_make(gen, v->offset, number_and_removed),
                          memory_order_release);
}

/* Its state into *RET_STATE; false if damaged. */
static inline bool record_get_state(const struct gen *gen, const struct view_of_record *v,
                                    uint64_t *ret_state)
{
    uint64_t word = atomic_load_explicit(&v->record->state, memory_order_acquire);

    *ret_state = word & (NUMBER_MASK | STATE_REMOVED);
    return word == record_state_make(gen, v->offset, *ret_state);
}

/* The link of LEVEL (LINK_BASE: the one in the header) leads to *RET_OFFSET, 0 for nowhere;
 * false if damaged. */
#define LINK_BASE (-1)
bool record_get_link(const struct gen *gen, const struct view_of_record *v, int level,
                     uint64_t *ret_offset);
void record_set_link(const struct gen *gen, const struct view_of_record *v, int level,
                     uint64_t offset);

/* ---- table.c: slots ---- */

/* What is looked for: a name in a directory, folded and hashed once. */
struct query {
    uint64_t key;
    uint64_t hash;
    const char *name;
    size_t len;
    size_t folded_len;
    struct {
        uint64_t key;
        char folded[FOLDFS_NAME_MAX + 1];
    } hashed;
};

void query_init(uint64_t seed, uint64_t key, const char *name, size_t len,
                struct query *ret_query);

static inline uint16_t query_tag(const struct query *q)
{
    return (uint16_t)q->hash;
}

/* The base record of Q's folded name and where its slot is. */
struct place {
    struct view_of_record base;
    _Atomic uint64_t *slot;
    uint64_t bucket;
};

/* Begins to fetch what table_find() will look at first: to be called early. */
void table_prefetch(const struct gen *gen, const struct query *q);
/* False if there is none.  *RET_DAMAGED is set (never cleared) if something invalid was met on
 * the way, which may have been what was looked for. */
bool table_find(struct gen *gen, const struct query *q, struct place *ret_place,
                bool *ret_damaged);
/* Leads a slot of Q to the record at OFFSET.  The caller holds the stripe and has found none.
 * 0 or -ENOSPC. */
int table_insert(struct gen *gen, const struct query *q, uint64_t offset);
/* Leads the slot at PLACE to another record. */
void table_replace(struct gen *gen, const struct query *q, const struct place *place,
                   uint64_t offset);
void table_format(struct gen *gen);
/* Counts the slots that lead to records before END; false if any slot is invalid. */
bool table_count(const struct gen *gen, uint64_t end, uint64_t *ret_taken);
/* An offset beyond all that slots lead to, whether a record is there or not. */
uint64_t table_end(const struct gen *gen);
/* Calls FN with the offset of each taken slot; *RET_DAMAGED counts the invalid ones. */
typedef void (*slot_fn)(void *ctx, uint64_t offset);
void table_for_each(const struct gen *gen, slot_fn fn, void *ctx, uint64_t *ret_damaged);

/* ---- variants.c: what folds like a base record ---- */

/* Where a name is, or would be, among the variants of a base record. */
struct variant_path {
    struct view_of_record anchor;
    struct view_of_record preds[LEVELS_MAX];
    struct view_of_record found; /* .record NULL: not there */
};

enum variants {
    VARIANTS_NONE,    /* the base stands alone */
    VARIANTS_OK,      /* the result is set */
    VARIANTS_DAMAGED, /* no answer possible */
};

/* Groups made before FLOOR are not trusted. */
enum variants variants_search(struct gen *gen, const struct view_of_record *base,
                              uint64_t floor, const char *name, size_t len,
                              struct variant_path *ret_path);
/* Looks at every node on every level. */
enum variants variants_verify(struct gen *gen, const struct view_of_record *base,
                              uint64_t floor, struct view_of_record *ret_anchor);
/* Adds a variant; PATH from variants_search, or NULL to begin a new group of BASE in place of
 * what there was.  0 or -ENOSPC. */
int variants_insert(struct gen *gen, const struct view_of_record *base,
                    const struct variant_path *path, uint64_t number_now, const char *name,
                    size_t len, uint64_t number_and_removed);
/* The variant after V in bytewise order (first: the anchor): 1, 0 at the end, -EUCLEAN. */
int variants_next(struct gen *gen, const struct view_of_record *anchor,
                  const struct view_of_record *v, struct view_of_record *ret_next);

/* ---- grace.c: when may old maps go? ---- */

#define GRACE_LANES 32u
struct grace {
    _Atomic unsigned phase;
    pthread_mutex_t lock;
    struct {
        _Alignas(CACHE_LINE) _Atomic uint64_t readers[2];
    } lanes[GRACE_LANES];
};

/* Between enter and exit the generations that were current at enter stay mapped. */
unsigned grace_enter(struct grace *grace);
void grace_exit(struct grace *grace, unsigned ticket);
/* Waits for all that entered before. */
void grace_wait(struct grace *grace);

/* ---- the index ---- */

enum crowd {
    CROWD_NONE,
    CROWD_SCANS_WAIT,   /* scans wait for the rebuild */
    CROWD_CHANGES_WAIT, /* everybody does */
};

/* What writers update: the generation in use, and the one that a rebuild is filling. */
struct view {
    struct gen *cur;
    struct gen *next;
};

#define STRIPES 256u
struct stripe {
    _Alignas(CACHE_LINE) pthread_mutex_t lock;
    _Atomic uint64_t seq; /* odd while a writer publishes */
};

/* A thread that works when asked to, or every so often. */
struct worker {
    pthread_t thread;
    bool running;
    bool stop;
    bool wanted;
    pthread_mutex_t lock;
    pthread_cond_t cond;
};

struct index {
    int dirfd; /* negative: in memory */
    int lock_fd;
    int64_t (*now)(void);
    void (*settle)(void *ctx); /* NULL: nothing is watched */
    void *settle_ctx;
    unsigned checkpoint_s;
    bool was_clean;

    struct manifest manifest;
    pthread_mutex_t manifest_lock;
    _Atomic uint64_t number;   /* the newest given out */
    _Atomic uint64_t reserved; /* the last that may be */
    uint64_t run_start;        /* numbers of this run are above */

    struct view *_Atomic view;
    struct grace grace;
    struct stripe stripes[STRIPES];
    struct cold unlasting; /* directories whose identity ends with the process */

    pthread_mutex_t live_lock;
    struct index_dir *live;
    pthread_mutex_t dirty_lock;
    struct index_dir *dirty;
    pthread_mutex_t suspects_lock;

    pthread_mutex_t scan_lock;
    pthread_cond_t scan_ended;

    pthread_mutex_t checkpoint_lock;
    _Atomic bool touched; /* names or table changed since they were synced */
    struct worker checkpointer;

    pthread_mutex_t rebuild_lock;
    struct worker rebuilder;
    pthread_mutex_t room_lock;
    pthread_cond_t room_made;
    uint64_t rebuild_tries;               /* under room_lock: ended, either way */
    _Atomic int64_t rebuild_not_before_s; /* after a failure: no other try before */
    _Atomic bool rebuild_asked;
    _Atomic unsigned rebuild_callers; /* of index_rebuild(), waiting for rebuild_lock */
    _Atomic int crowded;              /* enum crowd: how full the table in use is */
    _Atomic bool no_room_said;
    bool rebuild_failure_said;    /* under rebuild_lock */
    bool checkpoint_failure_said; /* under checkpoint_lock */

    _Atomic uint64_t scans;
    _Atomic uint64_t checkpoints;
};

/* manifest.c */
int manifest_read(int dirfd, struct manifest *ret_manifest);
int manifest_write(int dirfd, struct manifest *manifest);
int manifest_fresh(struct manifest *ret_manifest);
void boot_id_read(char ret_id[40]);
/* Writes the manifest with a first block of numbers reserved. */
int manifest_reserve(struct index *index);
/* The next number, never given out before.  -ENOSPC or another negative errno if none could be
 * reserved. */
int number_next(struct index *index, uint64_t *ret_number);
/* Reserves ahead if few are left. */
void number_reserve_ahead(struct index *index);

/* ---- dirs.c ---- */

struct index_scan {
    struct index_dir *dir;
    uint64_t key;
    uint64_t number;
    uint64_t lost; /* dir->lost at the beginning */
    int64_t began_ns, began_monotonic_ns;
    struct index_stamp first; /* under dir->lock: what the first change of ours found */
    bool has_first;
    bool changed; /* under dir->lock: changes of ours were in flight */
    bool foreign; /* under dir->lock: others changed it between two changes of ours */
    bool watched; /* was DIR, when it began? */
};

struct index_dir {
    UT_hash_handle hh; /* index->live, by id */
    bool refused;      /* no memory for it there */
    struct index *index;
    struct index_dir *prev, *next; /* index->dirty */
    bool is_dirty;                 /* under dirty_lock */
    bool is_snapped;               /* under dirty_lock: in a checkpoint's list */
    struct index_dir *snap_next;
    unsigned refs; /* under live_lock */
    bool persist;
    uint8_t id_hash[16];

    pthread_mutex_t lock;
    struct index_scan *scan; /* under lock: the running one */
    struct index_stamp begin_stamp;
    uint64_t begin_number; /* under lock: given out when the change in flight began */
    uint64_t stamp_number; /* under lock: removals below are covered by the stamp */
    int64_t scan_cost_ns;  /* of the last scan, by the monotonic clock */
    int64_t scan_end_ns;
    bool has_entry;         /* under lock: dirs holds something of it */
    bool used;              /* under lock: was scanned */
    bool forgotten;         /* under lock: its old entry must go */
    struct dirs_entry snap; /* checkpoint: what is to be written */

    _Atomic uint64_t key; /* 0: none could be had yet */
    _Atomic uint64_t scan_number;
    _Atomic uint64_t doubts[2 * DOUBTS_MAX]; /* as in struct doubts */
    _Atomic uint64_t scanning;               /* number of the running scan, or 0 */
    _Atomic bool complete;
    _Atomic uint64_t lost; /* counts what the index was told and could not keep */

    /* Read without lock under this sequence number, odd while they change. */
    _Atomic uint64_t seq;
    _Atomic int64_t stamp[4];
    _Atomic unsigned in_flight;
    _Atomic bool unsettled;
    /* Changes of others are told; and the stamp was found to hold since they are. */
    _Atomic bool watched, confirmed;
    int64_t granularity_ns;

    struct suspect *suspects;    /* under index->suspects_lock */
    uint64_t suspects_given_up;  /* the same: how often all were */
    _Atomic unsigned n_suspects; /* with those that are being mended */

    _Atomic uint64_t number; /* the caller's */
    size_t id_len;
    uint8_t id[];
};

void dir_mark_dirty(struct index_dir *dir);
/* DIR leaves a checkpoint's list; freed if nobody holds it and nothing is to be written. */
void dir_collect(struct index_dir *dir);
/* The removals in doubt that ENTRY of an earlier run stands for. */
struct doubts entry_doubts(const struct index *index, const struct dirs_entry *entry);
struct doubts dir_doubts(struct index_dir *dir);
void dir_set_doubts(struct index_dir *dir, const struct doubts *doubts);
static inline bool doubts_have(const struct doubts *doubts, uint64_t number)
{
    for (unsigned i = 0; i < DOUBTS_MAX; i++)
        if (number >= doubts->ranges[i].from && number < doubts->ranges[i].to)
            return true;
    return false;
}
/* The index was told something about DIR that it could not keep. */
void dir_lose(struct index_dir *dir);
void dir_store_stamp(struct index_dir *dir, const struct index_stamp *stamp, bool unsettled);
void dir_load_stamp(struct index_dir *dir, struct index_stamp *ret_stamp);
static inline bool stamp_equal(const struct index_stamp *a, const struct index_stamp *b)
{
    return a->ctime_ns == b->ctime_ns && a->mtime_ns == b->mtime_ns && a->size == b->size &&
           a->btime_ns == b->btime_ns;
}
/* Could another change at NOW still give a directory of that ctime the same ctime? */
static inline bool stamp_young(int64_t ctime_ns, int64_t granularity_ns, int64_t now)
{
    return ctime_ns > now || now - ctime_ns < granularity_ns;
}
/* Are changes of others told, and did the stamp hold since they are? */
bool dir_is_confirmed(struct index_dir *dir);
/* seqlock of the stamp; the caller holds dir->lock. */
void dir_write_begin(struct index_dir *dir);
void dir_write_end(struct index_dir *dir);

/* ---- suspects.c ---- */

/* Nothing is in doubt any more but what is being mended: DIR ends, or is incomplete. */
void suspects_clear(struct index_dir *dir);

/* ---- names.c ---- */

/* What is said of a name. */
enum update {
    UPDATE_ADD,    /* it is in the tree */
    UPDATE_REMOVE, /* it is gone */
    UPDATE_SCAN,   /* the scan with number SCAN saw it */
    UPDATE_COPY,   /* STATE is what the old generation says, unless this one knows better */
};
struct change {
    enum update what;
    uint64_t scan;  /* UPDATE_SCAN */
    uint64_t state; /* UPDATE_COPY: {number, removed} */
};

/* Tells GEN of Q; the caller holds Q's stripe.  DIR may be NULL (UPDATE_COPY).  0 or
 * -ENOSPC. */
int names_update(struct index *index, struct gen *gen, struct index_dir *dir,
                 const struct query *q, const struct change *change);
/* Tells both generations; a scan that finds too little room waits for a rebuild.  0, -ENOSPC.
 */
int names_tell(struct index_dir *dir, uint64_t key, const char *name, size_t len,
               const struct change *change);
static inline struct stripe *stripe_of(struct index *index, const struct query *q)
{
    return &index->stripes[(q->hash >> 16) % STRIPES];
}
void stripe_write_begin(struct stripe *stripe);
void stripe_write_end(struct stripe *stripe);

/* ---- checkpoint.c ---- */

enum checkpoint_kind { CHECKPOINT_RUNNING, CHECKPOINT_CLOSING };
/* Snapshots what can be proven of the dirty directories, syncs, writes it.  The caller holds
 * checkpoint_lock. */
int checkpoint_run(struct index *index, enum checkpoint_kind kind);
/* Its parts, for a rebuild, which syncs another generation in between. */
int checkpoint_snapshot(struct index *index, enum checkpoint_kind kind, uint64_t *ret_epoch,
                        struct index_dir **ret_list);
int checkpoint_write(struct index *index, const struct index_dir *list, struct cold *lasting);
void checkpoint_done(struct index *index, struct index_dir *list, int result);
void *checkpoint_thread(void *arg);

/* ---- worker.c ---- */

int worker_start(struct worker *worker, void *(*fn)(void *), void *arg);
void worker_stop(struct worker *worker);
void worker_wake(struct worker *worker);
/* Waits until woken or TIMEOUT_S seconds passed (0: for ever); false: the worker is to end. */
bool worker_wait(struct worker *worker, unsigned timeout_s);

/* ---- rebuild.c ---- */

/* Buckets of the first table. */
#define BUCKETS_MIN 512u

void *rebuild_thread(void *arg);
/* Asks for a rebuild if GEN is full enough, or damaged. */
void rebuild_if_due(struct index *index, struct gen *gen);
/* Waits while there is too little room for a caller that can wait. */
enum room { ROOM_FOR_SCAN, ROOM_FOR_CHANGE };
void rebuild_wait_for_room(struct index *index, enum room kind);

/* ---- known.c: which records a rebuild keeps ---- */

/* A directory by its key, as its durable entry and as memory see it. */
struct known {
    uint64_t key;
    uint64_t scan_number; /* records below do not count now */
    uint64_t scanning;    /* number of the running scan, or 0 */
    uint64_t entry_scan;  /* the same of a proven durable entry; else UINT64_MAX */
    uint64_t entry_epoch; /* removals from here on are evidence; else UINT64_MAX */
    struct doubts doubts, entry_doubts; /* so are these */
    bool live;
    bool spoiled; /* something of it is damaged */
};
struct known_dirs {
    struct known *dirs; /* by key */
    size_t count, room;
};
int known_collect(struct index *index, struct gen *gen, struct known_dirs *ret_known);
void known_free(struct known_dirs *known);
struct known *known_find(const struct known_dirs *known, uint64_t key);
/* Must a record in STATE be kept? */
bool known_keeps(const struct known *known, uint64_t state);

#endif
