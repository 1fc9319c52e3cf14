/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * gen.c - one generation: a folder "gen-N" with the files names, table and dirs, or the same
 * three in memory.
 *
 * What is trusted at opening: a header whose check is right, of the same id and generation as
 * the manifest, and a file as long as it must be.  Where the next record goes is not trusted
 * to a counter: it is after the last byte that is not zero, and not before what the last
 * checkpoint said; space behind the records has never been written.
 *
 * Left out: which generation is the one in use (manifest.c), and filling a new one
 * (rebuild.c).
 */
#include "index/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "fold/fold.h"
#include "log.h"

/* Room for the first records, and for the entries of the first directories. */
#define NAMES_FIRST_BYTES (64u * 1024)
#define DIRS_FIRST_SLOTS  256u
/* Address space for records: all slots with names of the longest kind, and not less than 64
 * MiB, for variants need no slots. */
#define NAMES_SPAN_MIN (UINT64_C(64) << 20)

#define COUNTER_SALT(seed, i) word_salt((seed), (i))

void header_seal(struct file_header *header)
{
    header->check = XXH3_64bits(header, offsetof(struct file_header, check));
}

bool header_valid(const struct file_header *header, const struct file_header *proto)
{
    return header->magic == proto->magic && header->format == INDEX_FORMAT &&
           header->fold_version == FOLD_VERSION && header->generation == proto->generation &&
           memcmp(header->id, proto->id, sizeof(header->id)) == 0 &&
           header->check == XXH3_64bits(header, offsetof(struct file_header, check));
}

void gen_folder_name(uint64_t number, char ret_name[32])
{
    snprintf(ret_name, 32, "gen-%llu", (unsigned long long)number);
}

static struct file_header proto_of(const struct manifest *m, uint64_t number)
{
    struct file_header h = {
        .format = INDEX_FORMAT, .fold_version = FOLD_VERSION, .generation = number};

    memcpy(h.id, m->id, sizeof(h.id));
    return h;
}

static struct gen *gen_alloc(const struct manifest *m, uint64_t number)
{
    struct gen *gen = calloc(1, sizeof(*gen));

    if (!gen)
        return NULL;
    gen->number = number;
    gen->seed = m->seed;
    gen->dirfd = gen->names.fd = gen->table.fd = gen->dirs.fd = -1;
    gen->proto = proto_of(m, number);
    pthread_mutex_init(&gen->grow_lock, NULL);
    return gen;
}

void gen_free(struct gen *gen)
{
    if (!gen)
        return;
    map_close(&gen->names);
    map_close(&gen->table);
    if (gen->dirs.fd >= 0)
        cold_close(&gen->dirs);
    if (gen->dirfd >= 0)
        close(gen->dirfd);
    pthread_mutex_destroy(&gen->grow_lock);
    free(gen);
}

void gen_remove_folder(int parent_fd, const char *name)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir) {
        for (struct dirent *e = readdir(dir); e; e = readdir(dir))
            if (e->d_name[0] != '.')
                (void)unlinkat(dirfd(dir), e->d_name, 0);
        closedir(dir);
    } else if (fd >= 0) {
        close(fd);
    }
    (void)unlinkat(parent_fd, name, AT_REMOVEDIR);
}

static void put_header(struct map *map, const struct file_header *proto, uint64_t magic,
                       uint64_t capacity)
{
    struct file_header h = *proto;

    h.magic = magic;
    h.capacity = capacity;
    header_seal(&h);
    memcpy(map->base, &h, sizeof(h));
}

static int create_files(struct gen *gen, uint64_t nbuckets, uint64_t names_span)
{
    uint64_t table_bytes = HEADER_BYTES + nbuckets * sizeof(struct bucket);

    if (names_span < NAMES_SPAN_MIN)
        names_span = NAMES_SPAN_MIN;
    if (names_span < nbuckets * SLOTS_PER_BUCKET * record_bytes(FOLDFS_NAME_MAX, 0))
        names_span = nbuckets * SLOTS_PER_BUCKET * record_bytes(FOLDFS_NAME_MAX, 0);
    int r = map_create(gen->dirfd, "table", table_bytes, table_bytes, &gen->table);
    if (r < 0)
        return r;
    r = map_create(gen->dirfd, "names", NAMES_FIRST_BYTES, names_span, &gen->names);
    if (r < 0)
        return r;
    put_header(&gen->table, &gen->proto, MAGIC_TABLE, nbuckets);
    put_header(&gen->names, &gen->proto, MAGIC_NAMES, names_span);
    gen->nbuckets = nbuckets;
    gen->buckets = (struct bucket *)(void *)(gen->table.base + HEADER_BYTES);
    atomic_store(&gen->tail, HEADER_BYTES);
    table_format(gen);
    gen_save_counters(gen);
    return cold_create(gen->dirfd, &gen->proto, gen->seed, DIRS_FIRST_SLOTS, &gen->dirs);
}

int gen_create(int parent_fd, const struct manifest *m, uint64_t number, uint64_t nbuckets,
               uint64_t names_span, struct gen **ret_gen)
{
    struct gen *gen = gen_alloc(m, number);
    char name[32];
    int r = 0;

    if (!gen)
        return -ENOMEM;
    gen_folder_name(number, name);
    if (parent_fd >= 0) {
        gen_remove_folder(parent_fd, name);
        if (mkdirat(parent_fd, name, 0700) < 0)
            r = -errno;
        else
            gen->dirfd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (r == 0 && gen->dirfd < 0)
            r = -errno;
    }
    if (r == 0)
        r = create_files(gen, nbuckets, names_span);
    if (r < 0) {
        gen_free(gen);
        if (parent_fd >= 0)
            gen_remove_folder(parent_fd, name);
        return r;
    }
    *ret_gen = gen;
    return 0;
}

static struct file_header *header_of(const struct map *map)
{
    return (struct file_header *)(void *)map->base;
}

static void counter_put(const struct gen *gen, const struct map *map, unsigned i, uint64_t v)
{
    atomic_store_explicit(&header_of(map)->counters[i],
                          word_make(v & PAYLOAD_MASK, COUNTER_SALT(gen->seed, i)),
                          memory_order_relaxed);
}

/* A counter, or -1 if it is damaged. */
static int64_t counter_get(const struct gen *gen, const struct map *map, unsigned i)
{
    uint64_t word = atomic_load_explicit(&header_of(map)->counters[i], memory_order_relaxed);

    return word_valid(word, COUNTER_SALT(gen->seed, i)) ? (int64_t)(word & PAYLOAD_MASK) : -1;
}

void gen_save_counters(struct gen *gen)
{
    counter_put(gen, &gen->names, COUNTER_TAIL, atomic_load(&gen->tail));
    counter_put(gen, &gen->table, COUNTER_USED, atomic_load(&gen->used));
    counter_put(gen, &gen->table, COUNTER_VARIANTS, atomic_load(&gen->variants));
    counter_put(gen, &gen->table, COUNTER_GARBAGE, atomic_load(&gen->garbage_bytes));
    counter_put(gen, &gen->table, COUNTER_RECORDS, atomic_load(&gen->garbage_records));
}

int gen_sync(struct gen *gen, uint64_t epoch)
{
    gen_save_counters(gen);
    counter_put(gen, &gen->names, COUNTER_SYNCED, epoch);
    counter_put(gen, &gen->table, COUNTER_SYNCED, epoch);
    if (gen->dirfd < 0)
        return 0;
    int r = map_sync(&gen->names);
    return r < 0 ? r : map_sync(&gen->table);
}

/* The end of the records: after the last byte that was ever written. */
static int find_tail(struct gen *gen)
{
    int64_t saved = counter_get(gen, &gen->names, COUNTER_TAIL);
    uint64_t end = atomic_load(&gen->names.size) / UNIT * UNIT;

    if (saved < (int64_t)HEADER_BYTES || (uint64_t)saved > end || saved % UNIT != 0)
        return -EUCLEAN;
    while (end > (uint64_t)saved) {
        uint64_t word;

        memcpy(&word, gen->names.base + end - UNIT, sizeof(word));
        if (word != 0)
            break;
        end -= UNIT;
    }
    atomic_store(&gen->tail, end);
    return 0;
}

static int load_counters(struct gen *gen, uint64_t reserved)
{
    int64_t used = counter_get(gen, &gen->table, COUNTER_USED);
    int64_t variants = counter_get(gen, &gen->table, COUNTER_VARIANTS);
    int64_t bytes = counter_get(gen, &gen->table, COUNTER_GARBAGE);
    int64_t records = counter_get(gen, &gen->table, COUNTER_RECORDS);
    int64_t names_synced = counter_get(gen, &gen->names, COUNTER_SYNCED);
    int64_t table_synced = counter_get(gen, &gen->table, COUNTER_SYNCED);

    if (used < 0 || variants < 0 || bytes < 0 || records < 0 || names_synced < 0 ||
        table_synced < 0)
        return -EUCLEAN;
    /* Numbers beyond what the manifest says were given out: the manifest is an older one, and
     * they would be given out again. */
    if ((uint64_t)names_synced > reserved || (uint64_t)table_synced > reserved)
        return -EUCLEAN;
    gen->synced = (uint64_t)(names_synced < table_synced ? names_synced : table_synced);
    atomic_store(&gen->used, (uint64_t)used);
    atomic_store(&gen->variants, (uint64_t)variants);
    atomic_store(&gen->garbage_bytes, (uint64_t)bytes);
    atomic_store(&gen->garbage_records, (uint64_t)records);
    return find_tail(gen);
}

/* The capacity that the header of file NAME tells, if it is ours. */
static int peek_capacity(const struct gen *gen, const char *name, uint64_t magic,
                         uint64_t *ret_capacity)
{
    CLEANUP_CLOSE int fd = openat(gen->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct file_header h, proto = gen->proto;

    if (fd < 0)
        return -errno;
    int r = read_at(fd, &h, sizeof(h), 0);
    if (r < 0)
        return r;
    proto.magic = magic;
    if (!header_valid(&h, &proto))
        return -EUCLEAN;
    *ret_capacity = h.capacity;
    return 0;
}

static int open_files(struct gen *gen, uint64_t reserved)
{
    uint64_t nbuckets, span;
    int r = peek_capacity(gen, "table", MAGIC_TABLE, &nbuckets);

    if (r == 0)
        r = peek_capacity(gen, "names", MAGIC_NAMES, &span);
    if (r == 0)
        r = map_open(gen->dirfd, "table", 0, &gen->table);
    if (r == 0)
        r = map_open(gen->dirfd, "names", span, &gen->names);
    if (r < 0)
        return r;
    if (atomic_load(&gen->table.size) != HEADER_BYTES + nbuckets * sizeof(struct bucket) ||
        atomic_load(&gen->names.size) > span)
        return -EUCLEAN;
    gen->nbuckets = nbuckets;
    gen->buckets = (struct bucket *)(void *)(gen->table.base + HEADER_BYTES);
    r = load_counters(gen, reserved);
    if (r < 0)
        return r;
    r = cold_open(gen->dirfd, &gen->proto, gen->seed, &gen->dirs);
    if (r != -EUCLEAN && r != -ENOENT)
        return r;
    log_line(LOG_WARNING, "index: the file dirs is damaged: every directory is scanned again");
    (void)unlinkat(gen->dirfd, "dirs", 0);
    return cold_create(gen->dirfd, &gen->proto, gen->seed, DIRS_FIRST_SLOTS, &gen->dirs);
}

/* After a power loss slots may lead to records that were lost, and with them the length of the
 * file. New ones must not come to lie there, where a slot of another life would find them. */
static int skip_lost_records(struct gen *gen)
{
    uint64_t end = table_end(gen);

    if (end <= atomic_load(&gen->tail))
        return 0;
    int r = end > gen->names.span ? -EUCLEAN : arena_grow_to(gen, end);
    if (r == 0)
        atomic_store(&gen->tail, end);
    return r;
}

int gen_open(int parent_fd, const struct manifest *m, enum history history,
             struct gen **ret_gen)
{
    struct gen *gen = gen_alloc(m, m->generation);
    char name[32];

    if (!gen)
        return -ENOMEM;
    gen_folder_name(gen->number, name);
    gen->dirfd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int r = gen->dirfd < 0 ? -errno : open_files(gen, m->reserved);
    if (r == 0 && history == HISTORY_POWER_LOSS)
        r = skip_lost_records(gen);
    if (r < 0) {
        gen_free(gen);
        return r == -ENOENT ? -EUCLEAN : r;
    }
    *ret_gen = gen;
    return 0;
}
